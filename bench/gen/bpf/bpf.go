// Package bpf holds the bench's XDP programs: the generator that is run with live frames, the kernel's ceilings
// (drop, bounce) and the counter at the generator's end.
package bpf

//go:generate go tool -modfile=../../../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -go-package bpf -cflags "-O2 -g -Wall -Werror -idirafter /usr/include/x86_64-linux-gnu" Gen gen.c
