package strictyaml

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Shipped are the documents of a kind that the program carries, each found by its name: Folder/NAME.yaml in Files. A person may
// give a file instead.
type Shipped struct {
	Kind   string // for errors, as in "card"
	Files  fs.FS
	Folder string
}

// Names are those of the shipped documents, in alphabetical order.
func (s Shipped) Names() []string {
	entries, err := fs.ReadDir(s.Files, s.Folder)
	if err != nil {
		return nil // it is embedded: it is there
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Text is the text of a shipped document. The error for one that is not there names those that are.
func (s Shipped) Text(name string) ([]byte, error) {
	text, err := fs.ReadFile(s.Files, path.Join(s.Folder, name+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("%s %q: there are %s, or give a file's path", s.Kind, name, strings.Join(s.Names(), ", "))
	}
	return text, nil
}

// Load is the text of the shipped document of a name, or of the file when the name has a slash or ends in .yaml. file says
// which, for errors in the text.
func (s Shipped) Load(name string) (file string, text []byte, err error) {
	if strings.Contains(name, "/") || strings.HasSuffix(name, ".yaml") {
		if text, err = os.ReadFile(name); err != nil {
			return "", nil, fmt.Errorf("%s: %w", s.Kind, err)
		}
		return name, text, nil
	}
	text, err = s.Text(name)
	return name + ".yaml", text, err
}
