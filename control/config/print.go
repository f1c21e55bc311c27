package config

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// Print writes the flags' values as a file that Read takes, each with what it
// means above it. Flags without a value are commented out.
func Print(w io.Writer, flags *pflag.FlagSet, exclude ...string) error {
	for _, name := range keys(flags, exclude) {
		f := flags.Lookup(name)
		value, err := text(f)
		if err != nil {
			return fmt.Errorf("print %s: %w", name, err)
		}
		line := name + ": " + value
		if value == "" || value == `""` || value == "[]" {
			line = "# " + name + ":"
		}
		if _, err := fmt.Fprintf(w, "# %s\n%s\n", f.Usage, line); err != nil {
			return err
		}
	}
	return nil
}

// text is a flag's value in YAML, on one line.
func text(f *pflag.Flag) (string, error) {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return quote(f.Value.String())
	}
	var items []string
	for _, v := range list.GetSlice() {
		q, err := quote(v)
		if err != nil {
			return "", err
		}
		items = append(items, q)
	}
	return "[" + strings.Join(items, ", ") + "]", nil
}

// quote quotes a string where YAML would take it for something else. Numbers,
// times and true and false are written plain.
func quote(s string) (string, error) {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("./_-", r)
	}
	if s != "" && !strings.HasPrefix(s, "-") && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 &&
		!slices.Contains([]string{"null", "Null", "NULL"}, s) {
		return s, nil
	}
	b, err := yaml.MarshalWithOptions(s, yaml.JSON())
	return strings.TrimSpace(string(b)), err
}

// Change is a flag whose value is another one in two sets of the same flags.
type Change struct{ Key, Was, Is string }

// Changes lists the flags whose values differ, by name.
func Changes(was, is *pflag.FlagSet, exclude ...string) []Change {
	var all []Change
	for _, name := range keys(is, exclude) {
		a, b := was.Lookup(name), is.Lookup(name)
		if a != nil && a.Value.String() != b.Value.String() {
			all = append(all, Change{name, a.Value.String(), b.Value.String()})
		}
	}
	return all
}

// Given is what a command line said, so that it can be said again to a fresh set
// of flags when the file is read again.
type Given map[string][]string

// GivenOf takes the flags that are set so far.
func GivenOf(flags *pflag.FlagSet) Given {
	g := Given{}
	flags.Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			g[f.Name] = slices.Clone(list.GetSlice())
		} else {
			g[f.Name] = []string{f.Value.String()}
		}
	})
	return g
}

// To sets the same flags in another set. Flags that it does not have are left out.
func (g Given) To(flags *pflag.FlagSet) error {
	for name, values := range g {
		f := flags.Lookup(name)
		if f == nil {
			continue
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			if err := list.Replace(values); err != nil {
				return fmt.Errorf("--%s: %w", name, err)
			}
			f.Changed = true
		} else if err := flags.Set(name, values[0]); err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
	}
	return nil
}

// Adopt copies the values of the live flags that differ from one set to the one
// that runs, and returns these changes and those that need a restart.
func Adopt(running, fresh *pflag.FlagSet, live []string, exclude ...string) (done, restart []Change, err error) {
	for _, c := range Changes(running, fresh, exclude...) {
		if !slices.Contains(live, c.Key) {
			restart = append(restart, c)
			continue
		}
		f := fresh.Lookup(c.Key)
		if list, ok := running.Lookup(c.Key).Value.(pflag.SliceValue); ok {
			err = list.Replace(f.Value.(pflag.SliceValue).GetSlice())
		} else {
			err = running.Lookup(c.Key).Value.Set(f.Value.String())
		}
		if err != nil {
			return done, restart, fmt.Errorf("%s: %w", c.Key, err)
		}
		done = append(done, c)
	}
	return done, restart, nil
}
