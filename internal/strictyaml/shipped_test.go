package strictyaml

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestShipped(t *testing.T) {
	s := Shipped{Kind: "card", Folder: "cards", Files: fstest.MapFS{
		"cards/b.yaml": {Data: []byte("of b")}, "cards/a.yaml": {Data: []byte("of a")}, "c.yaml": {Data: []byte("of c")},
	}}
	if got := s.Names(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("names %v", got)
	}
	own := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(own, []byte("my own"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][3]string{
		"a":           {"a.yaml", "of a", ""},
		own:           {own, "my own", ""},
		"c":           {"", "", `card "c": there are a, b, or give a file's path`},
		"":            {"", "", `card "": there are a, b, or give a file's path`},
		"b.yaml":      {"", "", "card: open b.yaml: no such file"}, // of the folder that the program runs in
		"../c":        {"", "", "card: open ../c: no such file"},
		own + "/none": {"", "", "card: open "},
	} {
		file, text, err := s.Load(name)
		if want[2] != "" {
			if err == nil || !strings.Contains(err.Error(), want[2]) || text != nil {
				t.Errorf("%q: %q, %v", name, text, err)
			}
			continue
		}
		if file != want[0] || string(text) != want[1] || err != nil {
			t.Errorf("%q: %q %q %v, want %q", name, file, text, err, want)
		}
	}
}
