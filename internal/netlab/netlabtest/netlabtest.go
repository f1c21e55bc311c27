// Package netlabtest gives tests a netlab.
package netlabtest

import (
	"os"
	"testing"

	"gradnic/internal/netlab"
)

// New returns a lab that is closed when the test ends. Without root the test is skipped with a message that says so;
// with root a lab that cannot be made, or that leaves anything behind, fails the test. prefix is that of [netlab.New].
func New(t testing.TB, prefix string) *netlab.Lab {
	t.Helper()
	NeedRoot(t)
	lab, err := netlab.New(prefix)
	if err != nil {
		t.Fatalf("root, but no network namespaces: %v", err)
	}
	t.Cleanup(func() {
		if err := lab.Close(); err != nil {
			t.Errorf("close lab: %v", err)
		}
	})
	return lab
}

// NeedRoot skips the test when it does not run as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes network namespaces and opens AF_XDP sockets")
	}
}

// Namespace makes a namespace in lab or fails the test.
func Namespace(t testing.TB, lab *netlab.Lab, name string) *netlab.NS {
	t.Helper()
	ns, err := lab.Namespace(name)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// Veth connects two ends or fails the test.
func Veth(t testing.TB, lab *netlab.Lab, a, b netlab.End) {
	t.Helper()
	if err := lab.Veth(a, b); err != nil {
		t.Fatal(err)
	}
}
