// Command sourcelint holds rules of this project that no common linter knows:
//
//   - package unsafe is imported in files named *_unsafe.go only (tests and generated files may);
//   - packages import each other only downwards, as docs/architecture.md says;
//   - no package is named util, utils, common, helpers or misc;
//   - hand-written files stay under about 500 lines (a warning);
//   - relative links in Markdown pages lead somewhere.
//
// It reads the files below the current directory that git would commit. Exit status 1 when a rule is broken.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate", "*.go", "*.c", "*.h", "*.py", "*.md").Output()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sourcelint: list files: git ls-files:", err)
		os.Exit(1)
	}
	broken, warned, files := 0, 0, 0
	for _, path := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		src, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // deleted, not committed yet
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "sourcelint:", err)
			os.Exit(1)
		}
		files++
		for _, f := range check(path, src) {
			kind := "error"
			if f.warning {
				kind = "warning"
				warned++
			} else {
				broken++
			}
			fmt.Printf("%s: %s: %s\n", path, kind, f.text)
		}
	}
	if files == 0 {
		fmt.Fprintln(os.Stderr, "sourcelint: no files found: run it at the top of the checkout")
		os.Exit(1)
	}
	fmt.Printf("sourcelint: %d files, %d errors, %d warnings\n", files, broken, warned)
	if broken > 0 {
		os.Exit(1)
	}
}
