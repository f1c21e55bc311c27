// Command leftovers fails when network namespaces are left over from labs (internal/netlab) whose process has died.
package main

import (
	"fmt"
	"os"

	"gradnic/internal/netlab"
)

func main() {
	names, err := netlab.Leftovers("")
	if err != nil {
		fmt.Fprintln(os.Stderr, "leftovers:", err)
		os.Exit(1)
	}
	for _, name := range names {
		fmt.Println("left over: network namespace", name)
	}
	if len(names) > 0 {
		os.Exit(1)
	}
	fmt.Println("no network namespace is left over")
}
