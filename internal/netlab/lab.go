package netlab

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
)

// Lab owns namespaces and links. Its methods may be called from several goroutines.
type Lab struct {
	stem string // every namespace of this lab is named stem + "-" + name

	mu       sync.Mutex
	byName   map[string]*NS
	order    []*NS // in order of creation; removed in reverse
	bridges  int   // how many bridge namespaces LimitedVeth has made
	closed   bool
	closeErr error
}

var (
	validPrefix = regexp.MustCompile(`^[a-z][a-z0-9]{0,23}$`)
	validName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._]{0,31}$`)
)

// New opens a lab. prefix (1 to 24 lower-case letters and digits, a letter first) starts the name of every namespace
// and bounds the sweep: leftovers of dead processes with the same prefix are removed first. Errors of the sweep are
// returned, because leftovers that cannot be removed say that this lab could not be removed either.
//
// New needs CAP_SYS_ADMIN and CAP_NET_ADMIN, in practice root.
func New(prefix string) (*Lab, error) {
	if !validPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("netlab: prefix %q: want 1 to 24 of [a-z0-9], a letter first", prefix)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("netlab: network namespaces need root")
	}
	if _, err := Sweep(prefix); err != nil {
		return nil, err
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("netlab: own start time: %w", err)
	}
	var nonce [3]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return nil, fmt.Errorf("netlab: random name: %w", err)
	}
	return &Lab{
		stem:   labStem(prefix, os.Getpid(), start, hex.EncodeToString(nonce[:])),
		byName: make(map[string]*NS),
	}, nil
}

// Name returns what the names of all namespaces of this lab start with.
func (l *Lab) Name() string { return l.stem }

// Namespace makes a network namespace: loopback up, IPv6 off. name is the part that the caller chooses (1 to 32
// letters, digits, dots and underscores) and must be new in this lab.
func (l *Lab) Namespace(name string) (*NS, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("netlab: namespace name %q: want 1 to 32 of [A-Za-z0-9._]", name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fmt.Errorf("netlab: namespace %s: the lab is closed", name)
	}
	return l.namespace(name)
}

// namespace is Namespace with l.mu held.
func (l *Lab) namespace(name string) (*NS, error) {
	if _, ok := l.byName[name]; ok {
		return nil, fmt.Errorf("netlab: namespace %s exists already in this lab", name)
	}
	ns, err := newNS(l.stem + "-" + name)
	if err != nil {
		return nil, fmt.Errorf("netlab: namespace %s: %w", name, err)
	}
	l.byName[name] = ns
	l.order = append(l.order, ns)
	return ns, nil
}

// Close kills every process that runs in a namespace of the lab (except the calling process), removes the links, then
// the namespaces. It goes on after an error and returns all of them. Calls after the first return the first's result.
func (l *Lab) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.closeErr
	}
	l.closed = true
	var errs []error
	for i := len(l.order) - 1; i >= 0; i-- {
		if err := l.order[i].remove(); err != nil {
			errs = append(errs, fmt.Errorf("netlab: remove %s: %w", l.order[i].name, err))
		}
	}
	l.closeErr = errors.Join(errs...)
	return l.closeErr
}
