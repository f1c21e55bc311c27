package report

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what a reader must know of the machine to judge a figure.
type Machine struct {
	Kernel string  `json:"kernel"`            // release
	CPU    string  `json:"cpu"`               // model name
	CPUs   int     `json:"cpus"`              // usable by this process
	Memory uint64  `json:"memory_bytes"`      // of the machine
	Go     string  `json:"go"`                // toolchain
	Load   float64 `json:"load_1m"`           // load average when the measurement started
	Time   string  `json:"time"`              // RFC 3339, UTC
	Commit string  `json:"commit,omitempty"`  // of this program, when built from a checkout
	Dirty  bool    `json:"dirty,omitempty"`   // the checkout had changes
	Driver string  `json:"driver,omitempty"`  // of the netdev, where frames flowed
	Mode   string  `json:"mode,omitempty"`    // XDP mode, where frames flowed
	Stolen float64 `json:"stolen,omitempty"`  // share of processor time that the hypervisor gave to others meanwhile
	Extra  string  `json:"comment,omitempty"` // anything else
}

// ThisMachine reads the facts.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), CPU: cpuModel(), Time: time.Now().UTC().Format(time.RFC3339)}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) == nil {
		m.Memory = s.Totalram * uint64(s.Unit)
	}
	m.Load = LoadAverage()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, kv := range info.Settings {
			switch kv.Key {
			case "vcs.revision":
				m.Commit = kv.Value
			case "vcs.modified":
				m.Dirty = kv.Value == "true"
			}
		}
	}
	return m
}

// LoadAverage is that of the last minute.
func LoadAverage() float64 {
	var s unix.Sysinfo_t
	if unix.Sysinfo(&s) != nil {
		return 0
	}
	return float64(s.Loads[0]) / (1 << 16)
}

// noticeable is the share of stolen time from which it is said.
const noticeable = 0.005

func (m Machine) String() string {
	s := fmt.Sprintf("%d CPUs (%s), Linux %s, %s, load %.1f", m.CPUs, m.CPU, m.Kernel, m.Go, m.Load)
	if m.Stolen >= noticeable {
		s += fmt.Sprintf(", %.1f %% of the processors taken by the hypervisor", 100*m.Stolen)
	}
	if m.Driver != "" {
		s += fmt.Sprintf(", %s in %s mode", m.Driver, m.Mode)
	}
	return s
}

// Stolen starts to watch the time for which the hypervisor gave this machine's processors to others. The function that it
// returns tells their share since then, 0 to 1; 0 also where the kernel does not say (proc(5), "steal").
func Stolen() (share func() float64) {
	stolen, all := processorTime()
	return func() float64 {
		s, a := processorTime()
		if a <= all || s <= stolen {
			return 0
		}
		return (s - stolen) / (a - all)
	}
}

// processorTime is the sum over all processors, in clock ticks: user, nice, system, idle, iowait, irq, softirq, steal.
func processorTime() (stolen, all float64) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	var v [8]float64
	if _, err := fmt.Sscanf(string(b), "cpu %f %f %f %f %f %f %f %f", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]); err != nil {
		return 0, 0
	}
	for _, t := range v {
		all += t
	}
	return v[7], all
}

// cpuModel is the first processor's model name, or the architecture where the kernel names none.
func cpuModel() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				return strings.TrimSpace(v)
			}
		}
	}
	return runtime.GOARCH
}
