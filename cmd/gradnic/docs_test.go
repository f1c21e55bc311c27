package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func page(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every verb, every view and every flag of run is in the pages, and defaults there are those of the binary.
func TestPagesNameWhatThereIs(t *testing.T) {
	cli, config := page(t, "cli.md"), page(t, "config.md")
	root := newRootCmd()
	rows := func(text, name string) (found []string) {
		for line := range strings.Lines(text) {
			cells := strings.Split(line, "|")
			if len(cells) > 3 && regexp.MustCompile("`"+regexp.QuoteMeta(name)+"[ `]").MatchString(cells[1]) {
				found = append(found, line)
			}
		}
		return found
	}
	for _, verb := range root.Commands() {
		if verb.IsAvailableCommand() && verb.Name() != "help" && rows(cli, verb.Name()) == nil {
			t.Errorf("cli.md has no row for the verb %s", verb.Name())
		}
		if verb.Name() == "show" {
			for _, view := range verb.Commands() {
				if rows(cli, view.Name()) == nil {
					t.Errorf("cli.md has no row for show %s", view.Name())
				}
			}
		}
		if verb.Name() != "run" {
			continue
		}
		verb.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" || strings.Contains(cli, "[--check | --print-config]") && (f.Name == "check" || f.Name == "print-config" || f.Name == "config") {
				return
			}
			lines := append(rows(cli, "--"+f.Name), rows(config, f.Name)...)
			if lines == nil {
				t.Errorf("neither cli.md nor config.md has a row for --%s", f.Name)
			}
			if !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(f.DefValue) {
				return
			}
			for _, line := range lines {
				cells := strings.Split(strings.TrimSpace(line), "|")
				if last := strings.TrimSpace(cells[len(cells)-2]); last != f.DefValue {
					t.Errorf("--%s is %s unless given, not %s: %s", f.Name, f.DefValue, last, line)
				}
			}
		})
	}
}
