package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// Layout of bbolt's meta page (go.etcd.io/bbolt, internal/common, Page and Meta),
// in the machine's byte order: 16 octets of page header, then magic, version, page
// size and flags of 4, and root (16), freelist, high-water mark, transaction and
// checksum of 8 octets. The checksum is FNV-1a of what stands before it.
const (
	metaAt       = 16
	metaSum      = 56 // octets under the checksum, and its place after metaAt
	metaMagic    = 0xED0CDAED
	metaPageSize = 8
	metaPages    = 40
	metaTx       = 48
)

// checkLength refuses a file that is shorter than its newer valid meta page says.
// What a transaction writes besides lies before its high-water mark, and bbolt
// writes the meta page last, so a file that is long enough is whole unless somebody
// else has written into it.
func checkLength(path string) error {
	s := &Store{path: path}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("store %s: it is not a file but %v: use another path", path, info.Mode())
	}
	var pages, newest uint64
	var valid bool
	for page := range int64(2) {
		var b [metaAt + metaSum + 8]byte
		if _, err := f.ReadAt(b[:], page*pageSize); errors.Is(err, io.EOF) {
			return s.broken(fmt.Errorf("it ends in meta page %d, after %d octets", page, info.Size()))
		} else if err != nil {
			return fmt.Errorf("store: %w", err)
		}
		m := b[metaAt:]
		sum := fnv.New64a()
		_, _ = sum.Write(m[:metaSum])
		if binary.NativeEndian.Uint32(m) != metaMagic || sum.Sum64() != binary.NativeEndian.Uint64(m[metaSum:]) {
			continue
		}
		if size := binary.NativeEndian.Uint32(m[metaPageSize:]); size != pageSize {
			return s.broken(fmt.Errorf("its pages have %d octets, not %d", size, pageSize))
		}
		if tx := binary.NativeEndian.Uint64(m[metaTx:]); !valid || tx > newest {
			pages, newest, valid = binary.NativeEndian.Uint64(m[metaPages:]), tx, true
		}
	}
	if !valid {
		return s.broken(errors.New("neither of its meta pages is valid"))
	}
	if have := uint64(info.Size()) / pageSize; have < pages {
		return s.broken(fmt.Errorf("it has %d octets of at least %d: it was cut", info.Size(), pages*pageSize))
	}
	return nil
}
