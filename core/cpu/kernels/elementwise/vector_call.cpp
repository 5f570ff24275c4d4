#include "core/cpu/kernels/elementwise/vector_call.h"

#if defined(__x86_64__) && defined(__clang__)
#define SHMAP_VECTOR_CALL(name, reg)     \
  asm(".text\n"                          \
      ".p2align 4\n"                     \
      ".globl " name                     \
      "\n"                               \
      ".hidden " name                    \
      "\n"                               \
      ".type " name ", @function\n" name \
      ":\n"                              \
      ".cfi_startproc\n"                 \
      "pushq %rbx\n"                     \
      ".cfi_adjust_cfa_offset 8\n"       \
      ".cfi_rel_offset %rbx, 0\n"        \
      "movq %rdi, %rbx\n"                \
      "vmovups (%rdi), %" reg            \
      "0\n"                              \
      "vmovups (%rsi), %" reg            \
      "1\n"                              \
      "call *%rdx\n"                     \
      "vmovups %" reg                    \
      "0, (%rbx)\n"                      \
      "vzeroupper\n"                     \
      "popq %rbx\n"                      \
      ".cfi_adjust_cfa_offset -8\n"      \
      "ret\n"                            \
      ".cfi_endproc\n"                   \
      ".size " name ", . - " name "\n")
SHMAP_VECTOR_CALL("shmap_vector_call_256", "ymm");
SHMAP_VECTOR_CALL("shmap_vector_call_512", "zmm");
#endif
