package netlab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// labStem builds the name that the namespaces of one lab share.
func labStem(prefix string, pid int, start uint64, nonce string) string {
	return fmt.Sprintf("%s-%d-%s-%s", prefix, pid, strconv.FormatUint(start, 36), nonce)
}

var stemOf = regexp.MustCompile(`^([a-z][a-z0-9]*)-([0-9]+)-([0-9a-z]+)-[0-9a-f]{6}-`)

// owner reads who made a namespace from its name.
func owner(name string) (prefix string, pid int, start uint64, ok bool) {
	m := stemOf.FindStringSubmatch(name)
	if m == nil {
		return "", 0, 0, false
	}
	pid, err1 := strconv.Atoi(m[2])
	start, err2 := strconv.ParseUint(m[3], 36, 64)
	return m[1], pid, start, err1 == nil && err2 == nil
}

// Leftovers returns the names of namespaces with the given prefix, or with any when prefix is "", whose owner lives no
// more.
func Leftovers(prefix string) ([]string, error) {
	entries, err := os.ReadDir(namedDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("netlab: list namespaces: %w", err)
	}
	var names []string
	for _, e := range entries {
		p, pid, start, ok := owner(e.Name())
		if !ok || prefix != "" && p != prefix {
			continue
		}
		// A pid that another process has by now has another start time.
		if now, err := startTime(pid); err == nil && now == start {
			continue
		}
		names = append(names, e.Name())
	}
	return names, nil
}

// Sweep removes what [Leftovers] finds, with the processes and links inside, and returns the names. [New] calls it.
func Sweep(prefix string) ([]string, error) {
	if !validPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("netlab: sweep: prefix %q: want 1 to 24 of [a-z0-9], a letter first", prefix)
	}
	names, err := Leftovers(prefix)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		if err := removeLeftover(name); err != nil {
			errs = append(errs, fmt.Errorf("netlab: sweep %s: %w", name, err))
		}
	}
	return names, errors.Join(errs...)
}

func removeLeftover(name string) error {
	ns := &NS{name: name, handle: netns.None()}
	h, err := netns.GetFromName(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil // another process swept it
	case err != nil:
		return err
	}
	ns.handle = h
	// The owner may have died between making the file and mounting the namespace on it: then the file is no
	// namespace, and only its name is to remove.
	if err := ns.Do(func() (err error) {
		ns.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	}); err != nil && !errors.Is(err, unix.EINVAL) {
		return errors.Join(err, h.Close())
	}
	return ns.remove()
}

// startTime returns when a process was started, in clock ticks since boot (field 22 of proc(5)'s stat). A zombie has
// no namespaces and counts as gone.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses and may hold spaces and parentheses itself.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the command", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// killProcesses kills every process in the namespace but the calling one, and waits until they have left it. The
// namespace is the lab's own, so whatever runs there was started by the lab's owner.
func killProcesses(h netns.NsHandle) error {
	var want unix.Stat_t
	if err := unix.Fstat(int(h), &want); err != nil {
		return fmt.Errorf("stat namespace: %w", err)
	}
	deadline := time.Now().Add(3 * time.Second)
	for {
		pids, err := processesIn(want.Dev, want.Ino)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not die", pids)
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func processesIn(dev, ino uint64) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		// A process that ended meanwhile, or a zombie, has no namespace any more.
		if unix.Stat(dir+"/ns/net", &st) == nil && st.Dev == dev && st.Ino == ino {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
