package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"gradnic/dataplane"
	"gradnic/wire/inet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(name string, generation uint64) Record {
	return Record{
		Spec: dataplane.JobSpec{Name: name, Tenant: "a", Protocol: "switchml", Workers: 2, Elements: 64, Slots: 16, InKernel: name == "kernel", Members: []dataplane.WorkerSpec{
			{Rank: 0, MAC: inet.MAC{2, 0, 0, 0, 1, 0}, IP: inet.Addr{10, 50, 0, 1}, Port: -1}}},
		Added: []dataplane.WorkerSpec{{Rank: 1, MAC: inet.MAC{2, 0, 0, 0, 1, 1}, IP: inet.Addr{10, 50, 0, 2}, Port: 1}},
		Ports: []string{"eth1", "eth2"}, Installed: time.Unix(1_800_000_000, 5).UTC(), Generation: generation, Lease: time.Minute,
	}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// names loads a store and returns what is in it: generation and the names.
func names(t *testing.T, s *Store) string {
	t.Helper()
	records, generation, err := s.Load()
	must(t, err)
	out := fmt.Sprint(generation)
	for _, r := range records {
		if want := record(r.Spec.Name, r.Generation); !reflect.DeepEqual(r, want) {
			t.Fatalf("read\n%+v, wrote\n%+v", r, want)
		}
		out += " " + r.Spec.Name
	}
	return out
}

func TestWhatIsWrittenIsThereAfterOpeningAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "jobs.db")
	s := open(t, path)
	must(t, s.Put(record("one", 1)))
	must(t, s.Put(record("two", 2)))
	must(t, s.Put(record("two", 3)))
	must(t, s.Delete("one", 4))
	must(t, s.Delete("none", 5))
	must(t, s.Put(record("kernel", 6)))
	if got := names(t, s); got != "6 kernel two" {
		t.Errorf("%s", got)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("opened twice: %v", err)
	}
	must(t, s.Close())
	if err := s.Put(record("three", 7)); err == nil {
		t.Error("a closed store took a record")
	}
	s = open(t, path)
	defer s.Close()
	if got := names(t, s); got != "6 kernel two" {
		t.Errorf("after opening again: %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestRefusesByName(t *testing.T) {
	dir := t.TempDir()
	newer := filepath.Join(dir, "newer.db")
	s := open(t, newer)
	must(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(schemaKey, []byte("7")) }))
	must(t, s.Close())
	foreign := filepath.Join(dir, "foreign.db")
	db, err := bbolt.Open(foreign, 0o600, &bbolt.Options{PageSize: pageSize})
	must(t, err)
	must(t, db.Close())
	text := filepath.Join(dir, "text.db")
	must(t, os.WriteFile(text, bytes.Repeat([]byte("no store "), 4000), 0o600))
	empty := filepath.Join(dir, "empty.db")
	must(t, os.WriteFile(empty, nil, 0o600))
	altered := filepath.Join(dir, "altered.db")
	s = open(t, altered)
	must(t, s.Put(record("one", 1)))
	must(t, s.Close())
	b, err := os.ReadFile(altered)
	must(t, err)
	must(t, os.WriteFile(altered, bytes.ReplaceAll(b, []byte(`"workers":2`), []byte(`"workers":3`)), 0o600))
	later := filepath.Join(dir, "later.db")
	s = open(t, later)
	value := []byte(`{"spec":{"name":"one","colour":"red"}}`)
	value = append(binary.LittleEndian.AppendUint32(nil, crc32.Checksum(value, castagnoli)), value...)
	must(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(jobsBucket).Put([]byte("one"), value) }))
	must(t, s.Close())
	older := filepath.Join(dir, "older.db")
	s = open(t, older)
	must(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(schemaKey, []byte("0")) }))
	must(t, s.Close())
	for path, says := range map[string]string{
		later: "unknown field \"colour\"", older: "it has schema 0, this gradnic reads schema 3",
		newer: "it has schema 7, this gradnic reads schema 3", foreign: "not gradnic's", text: "neither of its meta pages",
		empty: "ends in meta page 0", altered: "job one: its checksum is wrong", dir: "not a file",
	} {
		before, _ := os.ReadFile(path)
		s, err := Open(path)
		if err == nil {
			_, _, err = s.Load()
			must(t, s.Close())
		}
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, says)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s was changed", path)
		}
	}
}

// The last write is cut at every octet, in two ways: as a kill or a power loss cuts
// it (bbolt writes data pages, then the meta page: all prefixes of that order), and
// as a copy that ended early does (truncated). It opens to the state before or after
// the write, or is refused with what mends it. Never anything else.
func TestCutAtEveryOctetOfTheLastWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "jobs.db")
	s := open(t, path)
	for i := range 12 {
		must(t, s.Put(record(fmt.Sprintf("job%d", i), uint64(i+1))))
	}
	must(t, s.Delete("job3", 13))
	before, wantBefore := read(t, path), names(t, s)
	must(t, s.Put(record("last", 14)))
	after, wantAfter := read(t, path), names(t, s)
	must(t, s.Close())
	if wantBefore == wantAfter || len(before) != len(after) {
		t.Fatalf("%q and %q, %d and %d octets", wantBefore, wantAfter, len(before), len(after))
	}
	var order []int // the octets that differ, in the order in which they were written
	for i := range after {
		if i >= 2*pageSize && before[i] != after[i] {
			order = append(order, i)
		}
	}
	for i := range 2 * pageSize {
		if before[i] != after[i] {
			order = append(order, i)
		}
	}
	cut := filepath.Join(dir, "cut.db")
	must(t, os.WriteFile(cut, before, 0o600))
	file, err := os.OpenFile(cut, os.O_RDWR, 0)
	must(t, err)
	defer file.Close()
	try := func(what string) (state string) {
		s, err := Open(cut)
		if err == nil {
			_, _, err = s.Load()
			if err == nil {
				state = names(t, s)
			}
			must(t, s.Close())
		}
		switch {
		case err != nil && errors.Is(err, ErrBroken) && strings.Contains(err.Error(), "put a whole copy"):
			return "refused"
		case err != nil:
			t.Fatalf("%s: %v", what, err)
		case state != wantBefore && state != wantAfter:
			t.Fatalf("%s: %q, want %q or %q", what, state, wantBefore, wantAfter)
		}
		return state
	}
	for n, i := range order {
		_, err := file.WriteAt(after[i:i+1], int64(i))
		must(t, err)
		got := try(fmt.Sprintf("%d of %d octets written", n+1, len(order)))
		want := wantBefore
		if n+1 == len(order) {
			want = wantAfter
		}
		if got != want {
			t.Fatalf("%d of %d octets written: %s, want %s", n+1, len(order), got, want)
		}
	}
	end := 0
	for _, i := range order {
		end = max(end, i+1)
	}
	if now := read(t, cut); !bytes.Equal(now, after) {
		t.Fatal("the octets written one by one are not the file after the write")
	}
	refused := 0
	for n := end - 1; n >= 0; n-- {
		must(t, file.Truncate(int64(n)))
		if try(fmt.Sprintf("truncated to %d octets", n)) == "refused" {
			refused++
		}
	}
	if refused != end {
		t.Errorf("of %d files without their end %d were refused", end, refused)
	}
	t.Logf("%d octets written one by one, %d truncations", len(order), end)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func BenchmarkPut(b *testing.B) {
	s, err := Open(filepath.Join(b.TempDir(), "jobs.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := 0; b.Loop(); i++ {
		if err := s.Put(record(fmt.Sprintf("job%d", i%1000), uint64(i))); err != nil {
			b.Fatal(err)
		}
	}
}

// A file that was written before native jobs had codecs and keys has all its jobs, and then is of this schema. When one
// of its records can not be read it stays as it is.
func TestMigratesSchema1(t *testing.T) {
	old, err := os.ReadFile(filepath.Join("testdata", "schema1.db"))
	must(t, err)
	path := filepath.Join(t.TempDir(), "jobs.db")
	for _, round := range []string{"migrated", "opened again"} {
		if round == "migrated" {
			must(t, os.WriteFile(path, old, 0o600))
		}
		s := open(t, path)
		records, generation, err := s.Load()
		must(t, err)
		if generation != 3 || len(records) != 3 {
			t.Fatalf("%s: generation %d, %d records", round, generation, len(records))
		}
		for i, name := range []string{"native", "one", "two"} {
			r := records[i]
			if r.Spec.Name != name {
				t.Errorf("%s: record %d is %s", round, i, r.Spec.Name)
			}
			if name == "native" {
				if n := r.Spec.Native; n == nil || n.ID != 7 || n.Deadline != 10*time.Second || n.Codec != "" || r.Spec.Multicast.IP != (inet.Addr{239, 1, 1, 1}) {
					t.Errorf("%s: %+v", round, r.Spec)
				}
			} else if want := record(name, r.Generation); !reflect.DeepEqual(r, want) {
				t.Errorf("%s: read %+v, want %+v", round, r, want)
			}
		}
		var schema string
		must(t, s.db.View(func(tx *bbolt.Tx) error { schema = string(tx.Bucket(metaBucket).Get(schemaKey)); return nil }))
		if schema != fmt.Sprint(Schema) {
			t.Errorf("%s: schema %s", round, schema)
		}
		must(t, s.Close())
	}
	broken := bytes.Replace(old, []byte(`"workers":2`), []byte(`"workers":3`), 1)
	must(t, os.WriteFile(path, broken, 0o600))
	if _, err := Open(path); !errors.Is(err, ErrBroken) {
		t.Errorf("a broken one: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, broken) {
		t.Error("a broken one was changed")
	}
}

// What was written before the kernel could add up has no other form: only the number changes.
func TestMigratesSchema2(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	s := open(t, path)
	must(t, s.Put(record("one", 1)))
	must(t, s.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(schemaKey, []byte("2")) }))
	must(t, s.Close())
	s = open(t, path)
	defer s.Close()
	if got := names(t, s); got != "1 one" {
		t.Error(got)
	}
	must(t, s.db.View(func(tx *bbolt.Tx) error {
		if got := string(tx.Bucket(metaBucket).Get(schemaKey)); got != fmt.Sprint(Schema) {
			t.Errorf("schema %s", got)
		}
		return nil
	}))
}
