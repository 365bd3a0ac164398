# SPDX-License-Identifier: Apache-2.0
# Flags shared by every target, as the interface library tcq_flags.
#
# -ffp-contract=off: an fma happens where the source says fma and nowhere else,
# so that results are the same for every compiler and optimisation level.
add_library(tcq_flags INTERFACE)
target_compile_options(tcq_flags INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes
  -ffp-contract=off -fno-math-errno>)
# GCC 12 leaves a vzeroupper out before a call of a static function whose registers it
# knows (-fipa-ra); a kernel then returns with wide registers in use, and the SSE code
# after it runs fifty times slower (a SwiGLU of 1.4 us an element instead of 0.03).
target_compile_options(tcq_flags INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:C>,$<C_COMPILER_ID:GNU>>:-fno-ipa-ra>)
target_compile_definitions(tcq_flags INTERFACE _GNU_SOURCE)
if(TCQ_WERROR)
  target_compile_options(tcq_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-Werror>)
endif()
if(TCQ_SANITIZE)
  target_compile_options(tcq_flags INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-fsanitize=${TCQ_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
  target_link_options(tcq_flags INTERFACE -fsanitize=${TCQ_SANITIZE})
endif()
if(TCQ_BUILD_FUZZERS) # coverage for libFuzzer; its main comes with each target
  target_compile_options(tcq_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
endif()
