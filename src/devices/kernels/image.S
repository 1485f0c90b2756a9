// The compiled kernels as data. The macros are the paths of files (cmake/cuda_kernels.cmake).
  .section .rodata
  .globl hvd_cuda_machine_code, hvd_cuda_machine_code_end, hvd_cuda_ptx
  .hidden hvd_cuda_machine_code, hvd_cuda_machine_code_end, hvd_cuda_ptx
  .balign 64
hvd_cuda_machine_code:
#ifdef HVD_CUDA_FATBIN
  .incbin HVD_CUDA_FATBIN
#endif
hvd_cuda_machine_code_end:
  .balign 64
hvd_cuda_ptx:
  .incbin HVD_CUDA_PTX
  .byte 0  // the text ends here
  .section .note.GNU-stack, "", %progbits
