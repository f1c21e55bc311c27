package native

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Lengths of what a tagged message has at its end.
const (
	// TagLen is that of the tag.
	TagLen = 16
	// TrailerLen is that of counter and tag, the end of every tagged message.
	TrailerLen = 8 + TagLen
	// SaltLen is that of the salt, which a tagged report has before its trailer.
	SaltLen = 16
	// KeyLen is that of a worker's key.
	KeyLen = 16
)

// MaxCounter is the highest counter of a message: a nonce has 48 bits for it.
const MaxCounter = 1<<48 - 1

// Key is the secret that the network and one worker of a job have.
type Key [KeyLen]byte

// MarshalText writes 32 hexadecimal digits.
func (k Key) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(k[:])), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (k *Key) UnmarshalText(b []byte) error {
	if len(b) != 2*KeyLen {
		return fmt.Errorf("key of %d digits: legal are %d hexadecimal ones", len(b), 2*KeyLen)
	}
	if _, err := hex.Decode(k[:], b); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return nil
}

// String hides the key, so that no log has it.
func (k Key) String() string { return "(hidden)" }

// Salt makes the key of one process out of the worker's: its start in nanoseconds since 1970, 8 bytes, most significant
// first, and 8 random bytes. A later process has a later start.
type Salt [SaltLen]byte

// Started is when the process with this salt was started.
func (s *Salt) Started() uint64 { return binary.BigEndian.Uint64(s[:8]) }

// Direction is who sends a message.
type Direction uint16

// The directions.
const (
	FromWorker  Direction = 0
	FromNetwork Direction = 1 << 15
)

// Auth makes and checks the tags of messages between the network and one process of one worker. It is used by one
// goroutine at a time, and allocates nothing once it is made.
//
// The tag is GMAC: AES-128-GCM with nothing to encrypt, over the message up to the tag. Its key is the AES-128 encryption
// of the salt by the worker's key. The nonce is the epoch (4 bytes), the worker's rank with the direction in bit 15 (2)
// and the low 48 bits of the counter (6), all most significant first. A sender never uses a counter twice.
type Auth struct {
	aead  cipher.AEAD
	rank  uint16
	nonce [12]byte
	tag   [TagLen]byte
}

// NewAuth makes the authenticator of a process of the worker with this rank and key.
func NewAuth(key *Key, salt *Salt, rank int) (*Auth, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("key of rank %d: %w", rank, err)
	}
	var process [KeyLen]byte
	block.Encrypt(process[:], salt[:])
	if block, err = aes.NewCipher(process[:]); err != nil {
		return nil, fmt.Errorf("key of rank %d: %w", rank, err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("key of rank %d: %w", rank, err)
	}
	return &Auth{aead: aead, rank: uint16(rank)}, nil
}

func (a *Auth) setNonce(m []byte, d Direction, counter uint64) {
	copy(a.nonce[:4], m[8:12])
	binary.BigEndian.PutUint16(a.nonce[4:], a.rank|uint16(d))
	binary.BigEndian.PutUint16(a.nonce[6:], uint16(counter>>32))
	binary.BigEndian.PutUint32(a.nonce[8:], uint32(counter))
}

// Seal writes counter and tag into the end of a message, whose header has FlagTagged and a length that includes them.
func (a *Auth) Seal(m []byte, d Direction, counter uint64) {
	body := len(m) - TagLen
	binary.BigEndian.PutUint64(m[body-8:], counter)
	a.setNonce(m, d, counter)
	a.aead.Seal(m[body:body], a.nonce[:], nil, m[:body])
}

// Open checks the tag of a tagged message and returns its counter; ok is false when it is not right.
func (a *Auth) Open(m View, d Direction) (counter uint64, ok bool) {
	body := len(m) - TagLen
	counter = binary.BigEndian.Uint64(m[body-8:])
	if counter > MaxCounter {
		return 0, false
	}
	a.setNonce(m, d, counter)
	if _, err := a.aead.Open(a.tag[:0], a.nonce[:], m[body:], m[:body]); err != nil {
		return 0, false
	}
	return counter, true
}

// Tagged tells whether the message ends with counter and tag.
func (v View) Tagged() bool { return v.Flags()&FlagTagged != 0 }

// Salt is that of a tagged report.
func (v View) Salt() (s Salt) {
	copy(s[:], v[len(v)-TrailerLen-SaltLen:])
	return s
}

// Counter is that of a tagged message.
func (v View) Counter() uint64 { return binary.BigEndian.Uint64(v[len(v)-TrailerLen:]) }

// Tag is that of a tagged message.
func (v View) Tag() (t [TagLen]byte) {
	copy(t[:], v[len(v)-TagLen:])
	return t
}

// Untagged is the message without what a tag adds at its end. Its header still says that it was there.
func (v View) Untagged() View {
	if !v.Tagged() {
		return v
	}
	return v[:len(v)-v.tagLen()]
}

func (v View) tagLen() int {
	if v.Kind() == Report {
		return TrailerLen + SaltLen
	}
	return TrailerLen
}

// windowBits is how far behind the highest counter a message may come.
const windowBits = 4096

// Window knows which counters were used, as far back as windowBits; older ones count as used. The zero value knows none.
type Window struct {
	top  uint64 // the highest counter, plus 1
	used [windowBits / 64]uint64
}

// Use tells whether a counter is new, and makes it used.
func (w *Window) Use(counter uint64) bool {
	next := counter + 1
	if next > w.top {
		if next-w.top >= windowBits {
			clear(w.used[:])
		} else {
			for c := w.top; c < counter; c++ {
				w.used[c%windowBits/64] &^= 1 << (c % 64)
			}
		}
		w.top = next
	} else {
		if w.top-counter > windowBits {
			return false
		}
		if w.used[counter%windowBits/64]>>(counter%64)&1 != 0 {
			return false
		}
	}
	w.used[counter%windowBits/64] |= 1 << (counter % 64)
	return true
}
