package control

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"gradnic/dataplane"
	"gradnic/wire/native"
)

// This file is about the keys of tagged jobs. They are drawn here, kept with the job in
// the store, and told to who installs it; nothing else shows them.

// wanted are keys that are still to be drawn.
func wantedKeys(workers int) []native.Key {
	return make([]native.Key, min(max(workers, 0), dataplane.MaxNativeWorkers))
}

// drawKeys gives each worker of a tagged job a key, unless it has them.
func drawKeys(spec *dataplane.JobSpec) {
	if spec.Native == nil || len(spec.Native.Keys) == 0 || spec.Native.Keys[0] != (native.Key{}) {
		return
	}
	n := *spec.Native
	n.Keys = make([]native.Key, len(spec.Native.Keys))
	for i := range n.Keys {
		_, _ = rand.Read(n.Keys[i][:]) // it never fails
	}
	spec.Native = &n
}

// keys are a job's, by rank, as they are handed out; none when its messages are not tagged.
func (j *Jobs) keys(name string) (out []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.records[name]
	if r == nil || r.asked.Native == nil {
		return nil
	}
	for _, k := range r.asked.Native.Keys {
		text, _ := k.MarshalText() // it never fails
		out = append(out, string(text))
	}
	return out
}

// WriteKeys writes the keys of a job to a file that its owner alone may read: a line
// "RANK KEY" each. An older file is replaced whole, or not at all.
func WriteKeys(path string, keys []string) error {
	var b bytes.Buffer
	for rank, k := range keys {
		fmt.Fprintln(&b, rank, k)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".keys-*") // mode 0600
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	_, err = f.Write(b.Bytes())
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("keys: %w", err)
	}
	return nil
}

// ReadKey reads the key of a rank from a file that WriteKeys has written; lines of other
// ranks may be there or not.
func ReadKey(path string, rank int) (key native.Key, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return key, fmt.Errorf("keys: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		var r int
		var digits string
		if _, err := fmt.Sscanf(lines.Text(), "%d %s", &r, &digits); err != nil {
			return key, fmt.Errorf("keys: %s:%d: write RANK KEY", path, n)
		}
		if r == rank {
			if err := key.UnmarshalText([]byte(digits)); err != nil {
				return key, fmt.Errorf("keys: %s:%d: %w", path, n, err)
			}
			return key, nil
		}
	}
	return key, fmt.Errorf("keys: %s has none of rank %d", path, rank)
}
