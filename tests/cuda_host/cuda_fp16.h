/* The storage of a half and its conversions (IEEE 754 binary16, round to nearest even). */
#pragma once
#include <cmath>
#include <cstring>
struct __half { unsigned short bits; };

inline __half __float2half_rn(float value) {
  unsigned word;
  std::memcpy(&word, &value, 4);
  const unsigned short sign = (unsigned short)(word >> 16 & 0x8000u);
  const float size = std::fabs(value);
  if (!(size == size)) return {(unsigned short)(sign | 0x7e00u)};
  if (size >= 65520.0f) return {(unsigned short)(sign | 0x7c00u)};
  if (size == 0.0f) return {sign};
  int exponent = 0;
  std::frexp(size, &exponent);
  const int step = (exponent < -13 ? -13 : exponent) - 11;  // of the last bit: subnormal below 2^-14
  const unsigned units = (unsigned)std::nearbyint(std::ldexp(size, -step));
  return {(unsigned short)(sign | (units + ((unsigned)(step + 24) << 10)))};
}
inline unsigned short __half_as_ushort(__half value) { return value.bits; }
inline float __half2float(__half value) {
  const int exponent = value.bits >> 10 & 31, fraction = value.bits & 1023;
  const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent ? std::ldexp((float)(1024 + fraction), exponent - 25)
                                : std::ldexp((float)fraction, -24);
  return value.bits & 0x8000 ? -size : size;
}
