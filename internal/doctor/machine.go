package doctor

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel is a kernel's version.
type kernel struct {
	release      string
	major, minor int
}

func (k kernel) atLeast(major, minor int) bool {
	return k.major > major || k.major == major && k.minor >= minor
}

// parseKernel reads what uname says: 6.1.0-18-amd64.
func parseKernel(release string) (k kernel, ok bool) {
	k.release = release
	parts := strings.SplitN(release, ".", 3)
	if len(parts) < 2 {
		return k, false
	}
	digits := func(s string) (int, bool) {
		end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
		if end >= 0 {
			s = s[:end]
		}
		n, err := strconv.Atoi(s)
		return n, err == nil
	}
	var okMajor, okMinor bool
	k.major, okMajor = digits(parts[0])
	k.minor, okMinor = digits(parts[1])
	return k, okMajor && okMinor
}

func kernelNow() kernel {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return kernel{release: "unknown"}
	}
	k, _ := parseKernel(unix.ByteSliceToString(u.Release[:]))
	return k
}

// machine makes the checks that are about no interface. need is the bytes that the frames take.
func machine(o *Options, k kernel, need uint64) []Check {
	caps, capsErr := effectiveCaps()
	return []Check{
		judgeKernel(k),
		judgeBTF(exists("/sys/kernel/btf/vmlinux")),
		judgeSocket(unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)),
		judgeCaps(caps, capsErr),
		judgeMemlock(caps, need),
		judgeMemory(readFile("/proc/meminfo"), need),
		judgeHugePages(o, readFile("/proc/meminfo"), need),
		judgeJIT(strings.TrimSpace(readFile("/proc/sys/net/core/bpf_jit_enable"))),
		judgeCPUs(allowedCPUs(), o.Lanes),
		judgeBusyPoll(strings.TrimSpace(readFile("/proc/sys/net/core/busy_poll")), strings.TrimSpace(readFile("/proc/sys/net/core/busy_read"))),
	}
}

func judgeKernel(k kernel) Check {
	c := Check{Machine, "kernel", OK, k.release, "", ""}
	switch {
	case k.major == 0:
		c.Status, c.Why = Advice, "its version cannot be read"
	case !k.atLeast(5, 9):
		c.Status, c.Why, c.Mend = Missing, "XDP programs by link are from Linux 5.9 on", "boot a newer kernel (apt install linux-image-"+runtime.GOARCH+")"
	case !k.atLeast(6, 6):
		c.Status, c.Why = Advice, "frames larger than a chunk (an MTU above 1778 with chunks of 2048) need Linux 6.6"
	}
	return c
}

func judgeBTF(there bool) Check {
	if there {
		return Check{Machine, "btf", OK, "/sys/kernel/btf/vmlinux", "", ""}
	}
	return Check{Machine, "btf", Advice, "none", "tools like bpftool show less of the steering program without CONFIG_DEBUG_INFO_BTF", ""}
}

// judgeSocket takes the result of opening an AF_XDP socket, and closes it.
func judgeSocket(fd int, err error) Check {
	c := Check{Machine, "af-xdp", OK, "sockets can be opened", "", ""}
	switch err {
	case nil:
		_ = unix.Close(fd)
	case unix.EAFNOSUPPORT:
		c.Status, c.Found, c.Why = Missing, "unknown to the kernel", "it was built without CONFIG_XDP_SOCKETS"
	case unix.EPERM:
		c.Status, c.Found, c.Why, c.Mend = Missing, "not permitted", "AF_XDP sockets need CAP_NET_RAW", mendCaps
	default:
		c.Status, c.Found = Missing, err.Error()
	}
	return c
}

const mendCaps = "sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep \"$(command -v gradnic)\" (or run as root)"

// needed are the capabilities that gradnic run needs.
var needed = []struct {
	name string
	bit  uint
}{{"CAP_NET_RAW", unix.CAP_NET_RAW}, {"CAP_NET_ADMIN", unix.CAP_NET_ADMIN}, {"CAP_BPF", unix.CAP_BPF}}

func has(caps uint64, bit uint) bool { return caps>>bit&1 != 0 }

func judgeCaps(caps uint64, err error) Check {
	if err != nil {
		return Check{Machine, "capabilities", Missing, err.Error(), "", ""}
	}
	var lacks []string
	for _, n := range needed {
		if !has(caps, n.bit) && !(n.bit == unix.CAP_BPF && has(caps, unix.CAP_SYS_ADMIN)) {
			lacks = append(lacks, n.name)
		}
	}
	if len(lacks) == 0 {
		return Check{Machine, "capabilities", OK, "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF", "", ""}
	}
	return Check{Machine, "capabilities", Missing, "no " + strings.Join(lacks, ", "), "sockets, steering program and interfaces need them", mendCaps}
}

func effectiveCaps() (uint64, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return 0, fmt.Errorf("capget: %w", err)
	}
	return uint64(data[0].Effective) | uint64(data[1].Effective)<<32, nil
}

func judgeMemlock(caps, need uint64) Check {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return Check{Machine, "memlock", Missing, err.Error(), "", ""}
	}
	return memlock(has(caps, unix.CAP_IPC_LOCK), r.Max, need)
}

// memlock judges the hard limit, to which a program may raise its own.
func memlock(lockAny bool, limit, need uint64) Check {
	switch {
	case lockAny:
		return Check{Machine, "memlock", OK, "not limited (CAP_IPC_LOCK)", "", ""}
	case limit == unix.RLIM_INFINITY:
		return Check{Machine, "memlock", OK, "not limited", "", ""}
	case limit >= need:
		return Check{Machine, "memlock", OK, mib(limit), "", ""}
	}
	return Check{Machine, "memlock", Missing, mib(limit), "the frames take " + mib(need), "ulimit -l " + strconv.FormatUint((need+1023)/1024, 10) + " (a service: LimitMEMLOCK=infinity, or AmbientCapabilities=CAP_IPC_LOCK)"}
}

func judgeMemory(meminfo string, need uint64) Check {
	available, ok := meminfoBytes(meminfo, "MemAvailable")
	switch {
	case !ok:
		return Check{Machine, "memory", Advice, "unknown", "/proc/meminfo does not say", ""}
	case available < need:
		return Check{Machine, "memory", Missing, mib(available) + " available", "the frames take " + mib(need), "fewer frames (gradnic run --frames), or more memory"}
	}
	return Check{Machine, "memory", OK, mib(available) + " available", "", ""}
}

func judgeHugePages(o *Options, meminfo string, need uint64) Check {
	size, okSize := meminfoBytes(meminfo, "Hugepagesize")
	free, okFree := meminfoBytes(meminfo, "HugePages_Free")
	if !okSize || !okFree || size == 0 {
		c := Check{Machine, "huge-pages", OK, "the kernel has none", "", ""}
		if o.HugePages {
			c.Status, c.Why = Missing, "they were asked for"
		}
		return c
	}
	c := Check{Machine, "huge-pages", OK, fmt.Sprintf("%d free of %s", free, mib(size)), "", ""}
	pages := (need + size - 1) / size
	if o.HugePages && free < pages {
		c.Status, c.Why = Missing, fmt.Sprintf("the frames take %d", pages)
		c.Mend = fmt.Sprintf("sysctl -w vm.nr_hugepages=%d", pages)
	}
	return c
}

func judgeJIT(v string) Check {
	switch v {
	case "1", "2":
		return Check{Machine, "bpf-jit", OK, "on", "", ""}
	case "":
		return Check{Machine, "bpf-jit", OK, "cannot be seen here", "", ""}
	}
	return Check{Machine, "bpf-jit", Advice, "off", "the steering program is interpreted, which is slow", "sysctl -w net.core.bpf_jit_enable=1"}
}

func judgeCPUs(cpus, lanes int) Check {
	found := fmt.Sprintf("%d for %d lanes", cpus, lanes)
	switch {
	case cpus < lanes:
		return Check{Machine, "cpus", Missing, found, "each lane wants one", fmt.Sprintf("gradnic run --lanes %d", cpus)}
	case cpus == lanes:
		return Check{Machine, "cpus", Advice, found, "none is left for interrupts: lanes will not spin, which costs latency", "fewer lanes, or more CPUs for this process (taskset, cpuset)"}
	}
	return Check{Machine, "cpus", OK, found, "", ""}
}

func judgeBusyPoll(poll, read string) Check {
	found := fmt.Sprintf("net.core.busy_poll=%s busy_read=%s", poll, read)
	if poll == "" || read == "" || poll == "0" && read == "0" {
		if poll == "" && read == "" {
			found = "cannot be seen here"
		}
		return Check{Machine, "busy-poll", OK, found, "", ""}
	}
	return Check{Machine, "busy-poll", Advice, found, "every poll(2) of a lane that wants to sleep spins in the kernel first", "sysctl -w net.core.busy_poll=0 net.core.busy_read=0"}
}

func allowedCPUs() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return runtime.NumCPU()
	}
	return set.Count()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readFile returns a file's text, empty when it cannot be read.
func readFile(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}

// meminfoBytes finds a value in /proc/meminfo: in bytes where it has a unit, else as it is.
func meminfoBytes(text, key string) (uint64, bool) {
	sc := bufio.NewScanner(bytes.NewReader([]byte(text)))
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 2 || f[0] != key+":" {
			continue
		}
		n, err := strconv.ParseUint(f[1], 10, 64)
		if len(f) > 2 && f[2] == "kB" {
			n *= 1024
		}
		return n, err == nil
	}
	return 0, false
}

func mib(n uint64) string { return strconv.FormatFloat(float64(n)/(1<<20), 'f', -1, 32) + " MiB" }
