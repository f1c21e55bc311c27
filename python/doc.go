// Package python has no Go: it is where gradnic's Python package lies, and its tests, which python_test.go runs over a ring
// of NICs in memory.
package python
