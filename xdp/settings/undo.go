package settings

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// letGo is how long a driver is given to let go of queues whose sockets were closed just now.
const letGo = 2 * time.Second

// Undo sets back what was changed, in reverse order. The calling thread must be in the netdev's namespace. Whatever
// somebody else has changed since stays; kept says what, a line each. On an error the state file stays, for Restore.
func (a *Applied) Undo() (kept []string, err error) {
	if a == nil || a.record == nil {
		return nil, nil
	}
	_, kept, err = a.record.undoByName()
	if err == nil {
		a.record = nil
	}
	return kept, err
}

// undoByName opens the netdev; one that is gone, or another one by now, has nothing to be set back.
func (r *record) undoByName() (undone, kept []string, err error) {
	d, err := openDevice(r.Interface)
	if err != nil {
		if isNoSuchInterface(err) {
			return nil, nil, r.remove()
		}
		return nil, nil, err
	}
	defer d.close()
	return r.undo(d)
}

// isNoSuchInterface knows package net's error, which has no name, by its text.
func isNoSuchInterface(err error) bool {
	return errors.Is(err, unix.ENODEV) || strings.Contains(err.Error(), "no such network interface")
}

func (r *record) undo(d *device) (undone, kept []string, err error) {
	if d.index != r.Index {
		return nil, nil, r.remove()
	}
	for len(r.Changes) > 0 {
		last := len(r.Changes) - 1
		done, k, err := r.Changes[last].undo(d)
		if err != nil {
			return undone, kept, errors.Join(fmt.Errorf("interface %s: set back %v: %w (gradnic restore)", r.Interface, r.Changes[last], err), r.write())
		}
		if k != "" {
			kept = append(kept, fmt.Sprintf("interface %s: %s", r.Interface, k))
		}
		if done {
			undone = append(undone, r.Changes[last].String())
		}
		r.Changes = r.Changes[:last]
	}
	return undone, kept, r.remove()
}

// undo sets one change back, when it is still there; done tells whether it was, and kept why it stays.
func (c *change) undo(d *device) (done bool, kept string, err error) {
	if c.Rule != nil {
		_, there, err := d.findRule(*c.Rule)
		if err == nil && there {
			err = d.deleteRule(*c.Rule)
		}
		if err != nil && !unsupported(err) {
			return false, "", err
		}
		return there, "", nil
	}
	now, err := d.get(c.Kind, c.Name)
	if err != nil {
		return false, "", err
	}
	switch {
	case maps.Equal(now, c.Old): // killed before it was made, or set back by somebody else
		return false, "", nil
	case !maps.Equal(now, c.New):
		return false, fmt.Sprintf("%s is %s, neither what it was (%s) nor what it was set to (%s): left alone",
			c.subject(), c.text(now), c.text(c.Old), c.text(c.New)), nil
	}
	for until := time.Now().Add(letGo); ; time.Sleep(5 * time.Millisecond) {
		err := d.set(c.Kind, c.Name, c.Old)
		if err == nil || time.Now().After(until) || !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EBUSY) {
			return err == nil, "", err
		}
	}
}

// Restored is what Restore did with one state file.
type Restored struct {
	Interface string
	PID       int      // whose settings they were
	Undone    []string // a line each
	Kept      []string // what somebody else has changed since
	Skipped   string   // why nothing was done; "" when it was
	Err       error
}

// Restore sets back what processes that do not run any more have changed in the calling thread's network namespace: on
// one netdev, or on all when iface is empty.
func Restore(dir, iface string) ([]Restored, error) {
	ns, err := namespaceID()
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"+suffix))
	if err != nil {
		return nil, err
	}
	var all []Restored
	for _, name := range names {
		r, err := readRecord(name)
		if err != nil {
			all = append(all, Restored{Interface: filepath.Base(name), Err: err})
			continue
		}
		if r == nil || iface != "" && r.Interface != iface {
			continue
		}
		out := Restored{Interface: r.Interface, PID: r.PID}
		switch {
		case r.alive():
			out.Skipped = fmt.Sprintf("process %d runs on it", r.PID)
		case r.Namespace != ns && r.namespaceLives():
			out.Skipped = "it is in another network namespace (ip netns exec NAME gradnic restore)"
		case r.Namespace != ns: // the netdev went with its namespace
			out.Err = r.remove()
		default:
			out.Undone, out.Kept, out.Err = r.undoByName()
		}
		all = append(all, out)
	}
	return all, nil
}

// namespaceLives tells whether a process is in the record's namespace, or it has a name, as far as can be seen.
func (r *record) namespaceLives() bool {
	for _, pattern := range []string{"/run/netns/*", "/proc/[0-9]*/ns/net"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Stat(name, &st) == nil && fmt.Sprintf("%d-%d", st.Dev, st.Ino) == r.Namespace {
				return true
			}
		}
	}
	return false
}
