// Package main is libgradnic.so: package host for programs in C, and for what can call C. `make lib` builds it and puts
// gradnic.h, which documents every function, beside it.
//
// gradnic.c is what a program calls. It refuses work in a process that was forked from the one that loaded the library:
// Go's threads are not there, and a call into Go would wait for ever. The rest is Go: handles.go gives clients and
// operations numbers, so that one that is over is an error and not a crash, and capi_unsafe.go translates.
//
// Without cgo this is an empty program.
package main

func main() {}
