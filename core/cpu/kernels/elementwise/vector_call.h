// Calls of functions whose operands and result are AVX2 or AVX-512 vectors in registers, for
// compilers that would pass those in memory.
#pragma once

#if defined(__x86_64__) && defined(__clang__)
extern "C" {
// Writes function(*a, *b) to *a; a function of one vector ignores the second. The pointers are to
// 32 and to 64 bytes.
void shmap_vector_call_256(void* a, const void* b, void (*function)());
void shmap_vector_call_512(void* a, const void* b, void (*function)());
}
#endif
