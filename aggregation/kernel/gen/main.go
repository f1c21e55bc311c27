//go:build generate

// Command gen writes the assembly of package kernel. One description of formats, operations and instruction sets gives
// the whole family: the loops differ in how wire bytes are decoded, how they are folded, what must be looked for while
// folding, and how the result is encoded. Run it by `go generate ./aggregation/kernel`.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/mmcloughlin/avo/build"
)

func main() {
	set := flag.String("isa", "avx2", "instruction set: avx2 or avx512; any for what every amd64 has")
	tables := flag.String("tables", "", "write the Go tables of all loops to this file instead")
	layout := flag.String("layout", "", "write the layout of the parameter block to this file instead")
	flag.Parse()
	switch {
	case *tables != "":
		write(*tables, tableSource())
		return
	case *layout != "":
		write(*layout, layoutSource())
		return
	}
	if *set == "any" {
		emitPrefetch()
		Generate()
		return
	}
	isa, ok := isas[*set]
	if !ok {
		fmt.Fprintf(os.Stderr, "unknown instruction set %q\n", *set)
		os.Exit(2)
	}
	for _, f := range formats {
		for _, o := range opsOf(f) {
			newLoop(isa, f, o).emit()
		}
	}
	for _, s := range slots {
		if s.divides {
			emitDivide(isa, s)
		}
	}
	Generate()
}

func write(file string, src []byte) {
	if err := os.WriteFile(file, src, 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
