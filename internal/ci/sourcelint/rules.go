package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	module   = "gradnic"
	maxLines = 500
)

type finding struct {
	warning bool
	text    string
}

// mayImport says for the packages below a folder which folders of ours they may import; the folder itself and internal/
// always. Folders that are not named may import everything. It is the table of docs/architecture.md.
var mayImport = []struct {
	folder string
	may    []string
}{
	{"xdp/bpf", nil},
	{"xdp", []string{"xdp"}},
	{"wire", []string{"wire"}},
	{"codec", []string{"codec"}},
	{"aggregation/kernel", nil},
	{"aggregation", []string{"codec", "aggregation"}},
	{"multicast", []string{"wire"}},
	{"dataplane", []string{"xdp", "wire", "codec", "aggregation", "multicast", "dataplane"}},
	{"worker/accl", []string{"wire", "aggregation/kernel", "worker/datagram"}}, // a card adds up by itself: the loops, nothing of slots
	{"worker", []string{"wire", "codec", "control/switchml"}},                  // its controller's generated client
	{"service/ring", []string{"xdp", "wire", "codec", "aggregation", "multicast", "dataplane"}},
	{"host/shm", nil},
	{"host/nic", []string{"host/shm", "service/ring"}},
	{"host", nil}, // what a process links holds nothing of a NIC
	{"plan", []string{"plan"}},
	{"internal/plot", nil},
	{"internal/netlab", nil},
	{"internal/npy", nil},
	{"internal/cpu", nil},
}

// check returns what is wrong with one file.
func check(file string, src []byte) (found []finding) {
	add := func(warning bool, format string, args ...any) {
		found = append(found, finding{warning, fmt.Sprintf(format, args...)})
	}
	if strings.HasSuffix(file, ".md") {
		for _, target := range deadLinks(file, src) {
			add(false, "links to %s, which is not there", target)
		}
		return found
	}
	if !strings.HasSuffix(file, ".go") {
		if n := bytes.Count(src, []byte("\n")); n > maxLines {
			add(true, "%d lines, more than %d: split it by subject", n, maxLines)
		}
		return found
	}
	f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		add(false, "does not parse: %v", err)
		return found
	}
	generated, test := ast.IsGenerated(f), strings.HasSuffix(file, "_test.go")
	if n := bytes.Count(src, []byte("\n")); n > maxLines && !generated {
		add(true, "%d lines, more than %d: split it by subject", n, maxLines)
	}
	if slices.Contains([]string{"util", "utils", "common", "helpers", "misc"}, f.Name.Name) {
		add(false, "package %s: name it after what it provides", f.Name.Name)
	}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has accepted it
		}
		if imported == "unsafe" && !generated && !test && !strings.HasSuffix(file, "_unsafe.go") {
			add(false, "imports unsafe: only files named *_unsafe.go may")
		}
		if own, ok := strings.CutPrefix(imported, module+"/"); ok && !test && !importAllowed(path.Dir(file), own) {
			add(false, "imports %s, which docs/architecture.md does not allow here", imported)
		}
	}
	return found
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// deadLinks returns the targets of relative links that are no file or folder.
func deadLinks(file string, src []byte) (dead []string) {
	for _, m := range link.FindAllSubmatch(src, -1) {
		target := string(m[1])
		if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
			continue
		}
		if _, err := os.Stat(path.Join(path.Dir(file), target)); err != nil {
			dead = append(dead, target)
		}
	}
	return dead
}

func importAllowed(from, to string) bool {
	for _, rule := range mayImport { // deeper folders come first
		if !below(from, rule.folder) {
			continue
		}
		if below(to, rule.folder) || below(to, "internal") {
			return true
		}
		return slices.ContainsFunc(rule.may, func(folder string) bool { return below(to, folder) })
	}
	return true
}

// below says whether a slash-separated path is folder or inside it.
func below(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }
