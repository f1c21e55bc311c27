package main

import "github.com/spf13/pflag"

// renamed keeps a flag's old name working: hidden, with a line on standard error that says the new one.
func renamed(f *pflag.FlagSet, old, name string) {
	f.AddFlag(&pflag.Flag{Name: old, Value: f.Lookup(name).Value, Hidden: true, Deprecated: "its name is --" + name + " now"})
}
