package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"
)

// MaxFile bounds a file in bytes.
const MaxFile = 1 << 20

// ReadFile gives the flags that were not set already the values in a file.
// Flags named in exclude are no keys: those that only make sense on a command
// line. Nothing is set when the file has an unknown key or no right form; a
// value that its flag refuses may leave flags set that stand before it.
func ReadFile(path string, flags *pflag.FlagSet, exclude ...string) error {
	f, err := os.Open(path)
	if err != nil {
		return err // says open and the path
	}
	defer f.Close()
	return Read(path, f, flags, exclude...)
}

// Read is ReadFile of r; name is for errors.
func Read(name string, r io.Reader, flags *pflag.FlagSet, exclude ...string) error {
	text, err := io.ReadAll(io.LimitReader(r, MaxFile+1))
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > MaxFile {
		return fmt.Errorf("%s: a configuration has at most %d bytes", name, MaxFile)
	}
	settings, err := parse(name, text)
	if err != nil {
		return err
	}
	// All keys first, so that a misspelt one changes nothing.
	known := keys(flags, exclude)
	for _, s := range settings {
		if !slices.Contains(known, s.key) {
			return s.errorf(name, "%q is not a key%s", s.key, nearest(s.key, known))
		}
		if _, list := flags.Lookup(s.key).Value.(pflag.SliceValue); !list && s.list {
			return s.errorf(name, "%s has one value, not a list", s.key)
		}
	}
	for _, s := range settings {
		f := flags.Lookup(s.key)
		if f.Changed {
			continue
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			if err := list.Replace(nil); err != nil { // the default goes, as with a flag's first use
				return s.errorf(name, "%s: %v", s.key, err)
			}
			for _, v := range s.values {
				if err := list.Append(v); err != nil {
					return s.errorf(name, "%s: %v", s.key, Plain(err))
				}
			}
		} else if err := f.Value.Set(s.values[0]); err != nil {
			return s.errorf(name, "%s: %v", s.key, Plain(err))
		}
		f.Changed = true
	}
	return nil
}

// Plain says what is wrong with a value that was to be a number or true or false in words for who has written it, not in
// those of Go's strconv. Other errors stay as they are.
func Plain(err error) error {
	var n *strconv.NumError
	if !errors.As(err, &n) {
		return err
	}
	why := fmt.Sprintf("%q is not a number", n.Num)
	switch {
	case n.Func == "ParseBool":
		why = fmt.Sprintf("%q is neither true nor false", n.Num)
	case errors.Is(n, strconv.ErrRange):
		why = fmt.Sprintf("%q is too large or too small", n.Num)
	case strings.HasPrefix(n.Num, "-") && n.Func == "ParseUint":
		why = fmt.Sprintf("%q is not a number from 0 up", n.Num)
	}
	return errors.New(strings.Replace(err.Error(), n.Error(), why, 1))
}

// keys are the names of the flags that may stand in a file.
func keys(flags *pflag.FlagSet, exclude []string) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !slices.Contains(exclude, f.Name) {
			names = append(names, f.Name)
		}
	})
	return names
}

// setting is one key of a file with its value, or values.
type setting struct {
	key          string
	values       []string
	list         bool
	line, column int
}

func (s *setting) errorf(name, format string, args ...any) error {
	return fmt.Errorf("%s:%d:%d: %s", name, s.line, s.column, fmt.Sprintf(format, args...))
}

// parse reads one mapping of scalars and sequences of scalars.
func parse(name string, text []byte) ([]setting, error) {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil && at.GetToken().Position != nil {
			p := at.GetToken().Position
			return nil, fmt.Errorf("%s:%d:%d: %s", name, p.Line, p.Column, at.GetMessage())
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var docs []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			docs = append(docs, d.Body)
		}
	}
	if len(docs) == 0 {
		return nil, nil
	}
	if len(docs) > 1 {
		return nil, fmt.Errorf("%s: %d documents: a configuration is one", name, len(docs))
	}
	var pairs []*ast.MappingValueNode
	switch n := docs[0].(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		p := n.GetToken().Position
		return nil, fmt.Errorf("%s:%d:%d: a configuration is lines of KEY: VALUE, not a %s", name, p.Line, p.Column, strings.ToLower(n.Type().String()))
	}
	var settings []setting
	seen := map[string]int{}
	for _, pair := range pairs {
		p := pair.Key.GetToken().Position
		s := setting{line: p.Line, column: p.Column}
		key, ok := scalar(pair.Key)
		if !ok {
			return nil, s.errorf(name, "the key is not a word")
		}
		s.key = key
		if first, twice := seen[s.key]; twice {
			return nil, s.errorf(name, "%s is given twice, first in line %d", s.key, first)
		}
		seen[s.key] = s.line
		if list, ok := pair.Value.(*ast.SequenceNode); ok {
			s.list = true
			for _, item := range list.Values {
				v, ok := scalar(item)
				if !ok {
					return nil, s.errorf(name, "%s: an item of the list is not a single value", s.key)
				}
				s.values = append(s.values, v)
			}
		} else if v, ok := scalar(pair.Value); ok {
			s.values = []string{v}
		} else {
			return nil, s.errorf(name, "%s: neither a value nor a list of values", s.key)
		}
		settings = append(settings, s)
	}
	return settings, nil
}

// scalar is a value as it is written, without quotes. Numbers and the like stay
// text: their flag reads them, so that 02:67:0a:32:00:fe never is a number in
// base sixty.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}
