"""The bundled suite of kernels: repository number one."""
