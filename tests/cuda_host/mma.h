/* wmma on the host: the first lane of a warp holds whole 16 x 16 tiles and does the work of all.
 *
 * The layout of a fragment is not defined by CUDA, so a portable kernel treats all its elements alike, and this is a layout.
 */
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "shim.h"

namespace nvcuda::wmma {
struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16, "only 16 x 16 x 16 tiles");
  static constexpr int num_elements = 256;
  float x[256];
};

inline float widen(float value) { return value; }
inline float widen(__nv_bfloat16 value) { return __uint_as_float((unsigned)value.bits << 16); }
inline float widen(__half value) { return __half2float(value); }
template <class Layout>
constexpr bool by_columns = false;
template <>
constexpr bool by_columns<col_major> = true;

template <class Use, class T, class Layout>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout>& to, float value) {
  for (float& element : to.x) element = value;
}
template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride) {
  if (host::lane() != 0) return;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) to.x[i * 16 + j] = widen(by_columns<Layout> ? from[j * stride + i] : from[i * stride + j]);
}
inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, float>& to, const float* from, unsigned stride, layout_t layout) {
  if (host::lane() != 0) return;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) to.x[i * 16 + j] = layout == mem_row_major ? from[i * stride + j] : from[j * stride + i];
}
inline void store_matrix_sync(float* to, const fragment<accumulator, 16, 16, 16, float>& from, unsigned stride, layout_t layout) {
  if (host::lane() != 0) return;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 16; j++) (layout == mem_row_major ? to[i * stride + j] : to[j * stride + i]) = from.x[i * 16 + j];
}
template <class A, class B>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d, const A& a, const B& b, const fragment<accumulator, 16, 16, 16, float>& c) {
  if (host::lane() != 0) return;
  fragment<accumulator, 16, 16, 16, float> sum = c;
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 16; j++) sum.x[i * 16 + j] += a.x[i * 16 + k] * b.x[k * 16 + j];
  d = sum;
}
}  // namespace nvcuda::wmma
