package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"gradnic/dataplane"
)

// Schema is the number of the form in which this package writes. It grows with
// each form that the code before could not read, or would misread: that of 1 did not
// know codecs and keys of native jobs, that of 2 jobs whose contributions the kernel adds up.
const Schema = 3

// oldest is the first schema that is still read. What it lacks is zero in a Record, so
// that a file of it becomes one of Schema by its number alone.
const oldest = 1

// pageSize is fixed, so that a file can go to a machine with other pages.
const pageSize = 4096

var (
	metaBucket    = []byte("meta")
	jobsBucket    = []byte("jobs")
	schemaKey     = []byte("schema")
	generationKey = []byte("generation")
	castagnoli    = crc32.MakeTable(crc32.Castagnoli)
)

// ErrBroken is in the errors of files that are no store, or no longer whole.
var ErrBroken = errors.New("the store is broken")

// Record is one installed job.
type Record struct {
	// Spec is what was asked for, with its defaults; its ports are indices into Ports.
	Spec dataplane.JobSpec `json:"spec"`
	// Added are the workers that were added after the job was installed.
	Added []dataplane.WorkerSpec `json:"added,omitempty"`
	// Ports are the names of the NIC's ports when the record was written.
	Ports      []string  `json:"ports"`
	Installed  time.Time `json:"installed"`
	Generation uint64    `json:"generation"`
	// Lease is how long the job lives without being renewed; 0: for ever.
	Lease time.Duration `json:"lease,omitempty"`
}

// Store is an open file. Its methods may be called concurrently.
type Store struct {
	db   *bbolt.DB
	path string
}

// Open opens the store at path, or makes it (mode 0600, its directory 0700). Only
// one process has a store open. A file of an older schema becomes one of this schema,
// which the code of before refuses; one of a newer schema is refused, one that is
// not whole is refused with an error that wraps ErrBroken, and so is one that is
// no store at all; the file stays as it is.
func Open(path string) (s *Store, err error) {
	_, err = os.Stat(path)
	fresh := errors.Is(err, fs.ErrNotExist)
	if err != nil && !fresh {
		return nil, fmt.Errorf("store: %w", err)
	}
	if fresh {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("directory of store %s: %w", path, err)
		}
	} else if err := checkLength(path); err != nil {
		return nil, err
	}
	s = &Store{path: path}
	if fresh {
		if err := s.make(); err != nil {
			return nil, err
		}
	}
	err = s.guard(func() error {
		s.db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second, PageSize: pageSize, FreelistType: bbolt.FreelistMapType})
		switch {
		case errors.Is(err, bolterrors.ErrTimeout):
			return fmt.Errorf("store %s: another process has it open: stop that one or use another file", path)
		case err != nil:
			return s.broken(err)
		}
		if err := s.checkSchema(); err != nil {
			return err
		}
		return s.migrate()
	})
	if err != nil {
		if s.db != nil {
			_ = s.db.Close() // the first error says it
		}
		return nil, err
	}
	return s, nil
}

// make makes a store without jobs. It has another name until it is whole, so that
// a process that is killed in the middle leaves nothing that the next one refuses.
func (s *Store) make() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make store %s: %w", s.path, err)
		}
	}()
	unfinished := s.path + ".new"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := bbolt.Open(unfinished, 0o600, &bbolt.Options{Timeout: time.Second, PageSize: pageSize})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if _, err := tx.CreateBucket(jobsBucket); err != nil {
			return err
		}
		meta, err := tx.CreateBucket(metaBucket)
		if err != nil {
			return err
		}
		return meta.Put(schemaKey, strconv.AppendInt(nil, Schema, 10))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Rename(unfinished, s.path); err != nil {
		return err
	}
	return syncDir(s.path)
}

func (s *Store) broken(why error) error {
	return fmt.Errorf("store %s: %w: %w: put a whole copy of it there, or move it away and install the jobs again", s.path, ErrBroken, why)
}

// guard turns what bbolt does with pages that are not what they should be, a panic
// or a fault in the mapped file, into an error.
func (s *Store) guard(do func() error) (err error) {
	was := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(was)
	defer func() {
		if p := recover(); p != nil {
			err = s.broken(fmt.Errorf("reading it failed: %v", p))
		}
	}()
	return do()
}

// checkSchema refuses a file that this package does not read.
func (s *Store) checkSchema() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if meta == nil || meta.Get(schemaKey) == nil || tx.Bucket(jobsBucket) == nil {
			return s.broken(errors.New("it has no schema: it is not gradnic's"))
		}
		schema, err := strconv.Atoi(string(meta.Get(schemaKey)))
		if err != nil {
			return s.broken(fmt.Errorf("schema: %w", err))
		}
		if schema < oldest || schema > Schema {
			return fmt.Errorf("store %s: it has schema %d, this gradnic reads schema %d: run the gradnic that wrote it, or move it away and install the jobs again", s.path, schema, Schema)
		}
		return nil
	})
}

// migrate makes a file of an older schema one of this, whole or not at all.
func (s *Store) migrate() error {
	var schema string
	if err := s.db.View(func(tx *bbolt.Tx) error {
		schema = string(tx.Bucket(metaBucket).Get(schemaKey))
		return nil
	}); err != nil || schema == strconv.Itoa(Schema) {
		return err
	}
	if _, _, err := s.Load(); err != nil { // what can not be read stays as it is
		return err
	}
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(metaBucket).Put(schemaKey, strconv.AppendInt(nil, Schema, 10))
	}); err != nil {
		return fmt.Errorf("store %s: from schema %s to %d: %w", s.path, schema, Schema, err)
	}
	return nil
}

// Load returns all records by name, and the last generation that was written.
func (s *Store) Load() (records []Record, generation uint64, err error) {
	err = s.guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) error {
			if g := tx.Bucket(metaBucket).Get(generationKey); g != nil {
				if generation, err = strconv.ParseUint(string(g), 10, 64); err != nil {
					return s.broken(fmt.Errorf("generation: %w", err))
				}
			}
			return tx.Bucket(jobsBucket).ForEach(func(name, value []byte) error {
				var r Record
				if len(value) < 4 || crc32.Checksum(value[4:], castagnoli) != binary.LittleEndian.Uint32(value) {
					return s.broken(fmt.Errorf("job %s: its checksum is wrong", name))
				}
				d := json.NewDecoder(bytes.NewReader(value[4:]))
				d.DisallowUnknownFields() // half of a job is none
				if err := d.Decode(&r); err != nil {
					return s.broken(fmt.Errorf("job %s: %w", name, err))
				}
				if r.Spec.Name != string(name) {
					return s.broken(fmt.Errorf("job %s: it calls itself %q", name, r.Spec.Name))
				}
				records = append(records, r)
				return nil
			})
		})
	})
	if err != nil {
		return nil, 0, err
	}
	return records, generation, nil
}

// Put writes a record in the place of the one of its name. It is on the disk when
// Put returns nil, and the store is as it was when it does not.
func (s *Store) Put(r Record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("store job %s: %w", r.Spec.Name, err)
	}
	value := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(text)), crc32.Checksum(text, castagnoli))
	value = append(value, text...)
	return s.write("store job "+r.Spec.Name, r.Generation, func(jobs *bbolt.Bucket) error {
		return jobs.Put([]byte(r.Spec.Name), value)
	})
}

// Delete takes a record out; there need not be one.
func (s *Store) Delete(name string, generation uint64) error {
	return s.write("take job "+name+" out of the store", generation, func(jobs *bbolt.Bucket) error {
		return jobs.Delete([]byte(name))
	})
}

func (s *Store) write(what string, generation uint64, do func(jobs *bbolt.Bucket) error) error {
	err := s.guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			if err := tx.Bucket(metaBucket).Put(generationKey, strconv.AppendUint(nil, generation, 10)); err != nil {
				return err
			}
			return do(tx.Bucket(jobsBucket))
		})
	})
	if err != nil {
		return fmt.Errorf("%s (%s): %w", what, s.path, err)
	}
	return nil
}

// Path is the file's.
func (s *Store) Path() string { return s.path }

// Close closes the file. Calls after it fail.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close store %s: %w", s.path, err)
	}
	return nil
}

// syncDir makes the new file's name last.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
