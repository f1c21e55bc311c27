package strictyaml

import (
	"strings"
	"testing"
)

func TestUnmarshal(t *testing.T) {
	type file struct {
		Name string   `yaml:"name"`
		List []string `yaml:"list"`
	}
	for _, tt := range []struct{ text, fails string }{
		{"name: a\nlist: [b]\n", ""},
		{"name: a\nnmae: b\n", "f.yaml: [2:1] unknown field \"nmae\""},
		{"name: a\nlist:\n  ! #", "f.yaml: not well-formed YAML"}, // a panic of the library
		{"name: [", "f.yaml: "},
	} {
		var f file
		err := Unmarshal("f.yaml", []byte(tt.text), &f)
		switch {
		case tt.fails == "" && (err != nil || f.Name != "a" || len(f.List) != 1):
			t.Errorf("%q: %v, %+v", tt.text, err, f)
		case tt.fails != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.fails)):
			t.Errorf("%q: error %v, want %q", tt.text, err, tt.fails)
		}
	}
}
