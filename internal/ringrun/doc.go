// Package ringrun is what `gradnic ring` runs: one node of a ring of NICs, on an interface, that sums arrays with the
// others and checks them; and a demonstration of a whole ring in namespaces of its own.
package ringrun
