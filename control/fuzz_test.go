package control

import (
	"bytes"
	"testing"

	"gradnic/dataplane"
)

// Whatever a file says, reading it and translating it ends in a job or an error.
func FuzzReadJobFile(f *testing.F) {
	for _, s := range []string{
		"name: a\nworkers: 2\nmembers:\n  - {rank: 0, mac: 02:00:00:00:01:00, ip: 10.50.0.1, port: p}\n",
		"name: &a a\ntenant: *a\n", "name: [\n", "- 1\n", "name: !!binary AAAA\n", "<<: {name: a}\n", "name: |\n  a\n", "workers: 0x20\n", "workers: 1e3\n", "a: b: c\n", "\x00", "? a\n: b\n", "name: a\nin_kernel: true\n",
	} {
		f.Add([]byte(s))
	}
	ports := portNames{"p"}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := ReadJobFile("job.yaml", bytes.NewReader(text))
		if (file == nil) == (err == nil) {
			t.Fatalf("job %v and error %v", file, err)
		}
		if err != nil {
			return
		}
		m, err := file.Proto()
		if err != nil {
			return
		}
		spec, err := jobSpecFromProto(m, ports)
		if err != nil {
			return
		}
		if len(spec.Members) > dataplane.MaxWorkers || len(spec.Members) != len(file.Members) {
			t.Fatalf("%d members of %d", len(spec.Members), len(file.Members))
		}
	})
}
