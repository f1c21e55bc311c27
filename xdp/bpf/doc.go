// Package bpf holds the steering program: steer.c with answer.h and sum.h and, generated from it, the objects
// for both byte orders and the Go code that loads them. Users need Go alone; go
// generate needs clang-14 and llvm-strip-14. The objects are committed.
//
// steer.c and kernel.h may be used under GPL-2.0 or BSD-2-Clause, because the kernel
// asks for a GPL-compatible program. Package xdp attaches it and explains its verdicts.
package bpf

//go:generate go tool -modfile=../../tools/go.mod bpf2go -cc clang-14 -strip llvm-strip-14 -target bpfel,bpfeb -cflags "-O2 -mcpu=v3 -Wall -Werror -nostdinc" -type address -type bucket -type source -type spent -type stream -type account -type sum_slot -type sum_key -type sum_member -type sum_worker -type sum_job -go-package bpf Steer steer.c
