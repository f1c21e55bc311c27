package main

import "github.com/spf13/pflag"

// renamed keeps a flag's old name working: hidden and deprecated, but without pflag's notice, which goes to standard output,
// where documents are.
func renamed(f *pflag.FlagSet, old, name string) {
	f.AddFlag(&pflag.Flag{Name: old, Value: f.Lookup(name).Value, Usage: "deprecated: --" + name, Hidden: true})
}
