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

// The line of a value, or of what is nearest above one that is not there; never a panic.
func TestLine(t *testing.T) {
	text := []byte("# a comment\nname: a\nlist:\n  - {x: 1}\n  - x: 2\n    y: 3\n")
	for path, want := range map[string]int{
		"$.name": 2, "$.list[0].x": 4, "$.list[1].y": 6, "$.list[1].z": 5, "$.nothing": 0, "$": 0, "": 0, "$.list[9]": 4, "not a path": 0,
	} {
		if got := Line(text, path); got != want {
			t.Errorf("%s is in line %d, want %d", path, got, want)
		}
	}
	if got := Line([]byte("name: ["), "$.name"); got != 0 {
		t.Errorf("a broken file has line %d", got)
	}
}
