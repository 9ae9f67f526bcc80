/* The storage of a bfloat16; kernels do their own conversions. */
#pragma once
struct __nv_bfloat16 { unsigned short bits; };
