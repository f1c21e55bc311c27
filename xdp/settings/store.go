package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// EnvDir names the environment variable with the directory of the state files.
const EnvDir = "GRADNIC_STATE"

// DefaultDir is where state files are when the environment does not say.
const DefaultDir = "/run/gradnic"

// Dir is the directory of the state files.
func Dir() string {
	if d := os.Getenv(EnvDir); d != "" {
		return d
	}
	return DefaultDir
}

const suffix = ".settings.json"

// Kinds of settings.
const (
	kindChannels = "channels"
	kindRings    = "rings"
	kindFeature  = "feature"
	kindHash     = "hash-udp4"
	kindRule     = "rule"
)

// change is one setting: what was there, and what is there now. It is written before it is made.
type change struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"` // of a feature
	Old  values `json:"old,omitempty"`
	New  values `json:"new,omitempty"`
	Rule *Rule  `json:"rule,omitempty"` // that was added
}

// String is the change as people read it.
func (c change) String() string {
	if c.Rule != nil {
		return "rule " + c.Rule.String()
	}
	return fmt.Sprintf("%s: %s, was %s", c.subject(), c.text(c.New), c.text(c.Old))
}

// subject is what the change is about.
func (c *change) subject() string {
	if c.Name != "" {
		return c.Kind + " " + c.Name
	}
	return c.Kind
}

// text is values of the change's kind as people read them: "on", "rx=4 tx=4", "fields=0xf0".
func (c *change) text(v values) string {
	if c.Kind == kindFeature {
		return map[bool]string{true: "on", false: "off"}[v["on"] != 0]
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		switch {
		case c.Kind == kindHash:
			parts = append(parts, fmt.Sprintf("%s=%#x", name, v[name]))
		case v[name] != 0 || c.Old[name] != c.New[name]: // a driver has rx and tx, or combined
			parts = append(parts, fmt.Sprintf("%s=%d", name, v[name]))
		}
	}
	return strings.Join(parts, " ")
}

// record is a state file.
type record struct {
	Schema    int      `json:"schema"` // 1
	Interface string   `json:"interface"`
	Index     int      `json:"index"`
	Namespace string   `json:"namespace"` // device and inode
	PID       int      `json:"pid"`       // who has changed this
	Start     uint64   `json:"start"`     // of that process, in clock ticks since boot
	Changes   []change `json:"changes"`

	path string
}

// namespaceID names the calling thread's network namespace.
func namespaceID() (string, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return "", fmt.Errorf("this thread's network namespace: %w", err)
	}
	return fmt.Sprintf("%d-%d", st.Dev, st.Ino), nil
}

// startTime is when a process started, in clock ticks since boot; an error when there is no such process.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; fields are counted behind it.
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrNotExist // it has ended
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// alive tells whether the process that made the changes still runs.
func (r *record) alive() bool {
	t, err := startTime(r.PID)
	return err == nil && t == r.Start
}

func (r *record) own() bool { return r.PID == os.Getpid() && r.alive() }

func fileOf(dir, namespace, iface string) string {
	return filepath.Join(dir, namespace+"-"+iface+suffix)
}

// newRecord begins the calling process's changes of a netdev.
func newRecord(dir string, d *device) (*record, error) {
	ns, err := namespaceID()
	if err != nil {
		return nil, err
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return nil, err
	}
	return &record{
		Schema: 1, Interface: d.name, Index: d.index, Namespace: ns, PID: os.Getpid(), Start: start,
		path: fileOf(dir, ns, d.name),
	}, nil
}

// readRecord reads a state file; nil when there is none.
func readRecord(path string) (*record, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{path: path}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("state file %s: %w (remove it when nothing is to be set back)", path, err)
	}
	if r.Schema != 1 {
		return nil, fmt.Errorf("state file %s: schema %d, this is 1", path, r.Schema)
	}
	return r, nil
}

// write makes the record the file's content, all of it or none, on disk.
func (r *record) write() error {
	if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(r.path), ".settings-*")
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), r.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("state file: %w", err), os.Remove(f.Name()))
	}
	return nil
}

func (r *record) remove() error {
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("state file: %w", err)
	}
	return nil
}
