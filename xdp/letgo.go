package xdp

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The kernel lets go of a closed socket's queue after an RCU grace period and a work item that takes the RTNL lock: some
// milliseconds, but seconds where others keep the CPUs, or while network namespaces are taken down.
const (
	defaultBind = 2 * time.Second  // for a queue that a living socket has
	unknownBind = 5 * time.Second  // where the kernel does not tell whether one has it, as Debian's do not
	letGoBind   = 15 * time.Second // for one that none has
)

// whenLetGo calls bind until it does something other than to fail with EBUSY, for at most patience, and from then on
// until held says that a living socket has the queue, for at most letGo, all in all.
func whenLetGo(patience, letGo time.Duration, bind func() error, held func() (bool, error)) error {
	begin := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := bind()
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		if next := time.Since(begin) + pause; next > patience {
			living, unknown := held()
			if unknown != nil {
				letGo = min(letGo, unknownBind)
			}
			switch {
			case living:
				return fmt.Errorf("another AF_XDP socket holds the queue (waited %v): stop its process, which ss --xdp -p names: %w", max(0, patience), err)
			case next > letGo && unknown != nil:
				return fmt.Errorf("another AF_XDP socket holds the queue (waited %v): stop its process: %w", max(0, letGo), err)
			case next > letGo:
				return fmt.Errorf("the kernel has not let go of the queue, whose AF_XDP socket was closed (waited %v): %w", max(0, letGo), err)
			}
		}
		time.Sleep(pause)
	}
}

// queueHeld tells whether a living socket of the calling thread's network namespace is bound to a queue. It is an error on
// a kernel that does not list such sockets (CONFIG_XDP_SOCKETS_DIAG).
func queueHeld(ifindex, queue int) (bool, error) {
	sockets, err := netlink.SocketDiagXDP()
	if err != nil {
		return false, fmt.Errorf("list AF_XDP sockets: %w", err)
	}
	for _, s := range sockets {
		if s.XDPInfo != nil && int(s.XDPInfo.Ifindex) == ifindex && int(s.XDPInfo.QueueID) == queue {
			return true, nil
		}
	}
	return false, nil
}
