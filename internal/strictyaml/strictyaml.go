// Package strictyaml reads YAML that a person wrote: unknown keys are errors with their line, and no file, however odd,
// is a panic.
package strictyaml

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
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

// Line is the line of what a path such as "$.fields[2].width" leads to in text, or of the nearest thing above it that is
// there; 0 when nothing is.
func Line(text []byte, path string) (line int) {
	defer func() {
		if recover() != nil {
			line = 0
		}
	}()
	for path != "" && path != "$" {
		if p, err := yaml.PathString(path); err == nil {
			if node, err := p.ReadNode(bytes.NewReader(text)); err == nil && node != nil && node.GetToken() != nil {
				return firstLine(node)
			}
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return 0
}

// firstLine is where a node starts: the token of a mapping is its first colon's, which stands behind a key.
func firstLine(node ast.Node) int {
	switch n := node.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			return n.Values[0].Key.GetToken().Position.Line
		}
	case *ast.MappingValueNode:
		return n.Key.GetToken().Position.Line
	case *ast.SequenceNode:
		if len(n.Values) > 0 {
			return firstLine(n.Values[0])
		}
	}
	return node.GetToken().Position.Line
}
