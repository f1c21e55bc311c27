// Package strictyaml reads YAML that a person wrote: unknown keys are errors with their line, and no file, however odd,
// is a panic.
package strictyaml

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
)

// Unmarshal decodes text into the value that into points to. name is the file's, for errors, which are one line and say
// line and column.
func Unmarshal(name string, text []byte, into any) (err error) {
	// go-yaml 1.19.2 panics on some files that are not well-formed, such as a tag without a value where a list belongs.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: not well-formed YAML: %v", name, p)
		}
	}()
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		return fmt.Errorf("%s: %s", name, strings.TrimSpace(yaml.FormatError(err, false, false)))
	}
	return nil
}
