// Package config reads a command's flags from a YAML file.
//
// The flags are the schema: every key of the file is a flag of the command, by
// the same name, and every flag is a key. So there is one list of settings, one
// parser of each value and one default, and a setting that is added as a flag is
// a key at once. What the command line gives wins over the file.
//
// A file is one mapping of keys to scalars, or to sequences of scalars for flags
// that may be given more than once:
//
//	port: [eth1, eth2]
//	ip: 10.50.0.254
//	lanes: 2
//
// Reading is strict: an unknown key, a key given twice, a value of the wrong form
// and a nested value are errors that say file, line and column, and for unknown
// keys the nearest one.
package config
