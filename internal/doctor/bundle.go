package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"
)

// File is one file of a bundle.
type File struct {
	Name string
	Data []byte
}

// hidden are the keys whose values leave no machine: they say whose it is, and no bug depends on them.
var hidden = []string{"tenant"}

// JSONFile makes a file of a document, with what is to be hidden left out.
func JSONFile(name string, document any) (File, error) {
	b, err := json.Marshal(document)
	if err != nil {
		return File{}, fmt.Errorf("bundle: %s: %w", name, err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // counters have 64 bits
	var v any
	if err := d.Decode(&v); err != nil {
		return File{}, fmt.Errorf("bundle: %s: %w", name, err)
	}
	hide(v)
	if b, err = json.MarshalIndent(v, "", "  "); err != nil {
		return File{}, fmt.Errorf("bundle: %s: %w", name, err)
	}
	return File{name, append(b, '\n')}, nil
}

func hide(v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if s, ok := value.(string); ok && s != "" && slices.Contains(hidden, key) {
				v[key] = "(hidden)"
				continue
			}
			hide(value)
		}
	case []any:
		for _, value := range v {
			hide(value)
		}
	}
}

// sysctls are the settings that matter to the NIC.
var sysctls = []string{
	"kernel/unprivileged_bpf_disabled", "kernel/osrelease", "kernel/ostype", "kernel/version", "net/core/bpf_jit_enable", "net/core/busy_poll",
	"net/core/busy_read", "net/core/dev_weight", "net/core/netdev_budget", "net/core/netdev_budget_usecs",
	"net/core/netdev_max_backlog", "net/core/rmem_max", "net/core/wmem_max", "vm/nr_hugepages", "vm/overcommit_memory",
}

// Facts are what the kernel says of itself and of the interfaces. There are no command lines, environments, host
// names, users or files in it.
func Facts(interfaces []string) File {
	var b strings.Builder
	section := func(name string) { fmt.Fprintf(&b, "\n== %s\n", name) }
	fmt.Fprintf(&b, "architecture %s, %d CPUs, %d allowed\n", runtime.GOARCH, runtime.NumCPU(), allowedCPUs())
	section("settings")
	for _, s := range sysctls {
		if v := strings.TrimSpace(readFile("/proc/sys/" + s)); v != "" {
			fmt.Fprintf(&b, "%s = %s\n", strings.ReplaceAll(s, "/", "."), v)
		}
	}
	section("processor")
	b.WriteString(first(readFile("/proc/cpuinfo"), "model name", "flags", "Features", "CPU part"))
	section("memory")
	b.WriteString(first(readFile("/proc/meminfo"), "MemTotal", "MemAvailable", "HugePages_Total", "HugePages_Free", "Hugepagesize", "Mlocked"))
	if len(interfaces) == 0 {
		interfaces, _ = ethernets()
	}
	for _, name := range interfaces {
		section("interface " + name)
		d, err := look(name, false)
		if err != nil {
			fmt.Fprintln(&b, err)
			continue
		}
		fmt.Fprintf(&b, "driver %q kind %q master %q mtu %d up %v carrier %v\n", d.driver, d.kind, d.master, d.mtu, d.up, d.carrier)
		fmt.Fprintf(&b, "xdp features %#x known %v segments %d; program %d %q %s\n", d.features, d.known, d.segments, d.program, d.progName, d.mode)
		fmt.Fprintf(&b, "receive queues %d of %d; ipv6 %v; napi_defer_hard_irqs %q gro_flush_timeout %q\n", d.channels, d.most, d.ipv6, d.deferIRQs, d.groTimeout)
		var on []string
		for f, is := range d.on {
			if is {
				on = append(on, f)
			}
		}
		slices.Sort(on)
		fmt.Fprintf(&b, "features on: %s\n", strings.Join(on, " "))
	}
	return File{"facts.txt", []byte(b.String())}
}

// first returns the first line of each key.
func first(text string, keys ...string) string {
	var b strings.Builder
	for _, key := range keys {
		for line := range strings.Lines(text) {
			if name, _, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == key {
				b.WriteString(line)
				break
			}
		}
	}
	return b.String()
}

// WriteBundle writes the files as a .tar.gz, in a folder named after the time.
func WriteBundle(w io.Writer, now time.Time, files []File) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	folder := "gradnic-" + now.UTC().Format("20060102-150405") + "/"
	for _, f := range files {
		if err := t.WriteHeader(&tar.Header{Name: folder + f.Name, Mode: 0o600, Size: int64(len(f.Data)), ModTime: now.UTC().Truncate(time.Second)}); err != nil {
			return fmt.Errorf("bundle: %s: %w", f.Name, err)
		}
		if _, err := t.Write(f.Data); err != nil {
			return fmt.Errorf("bundle: %s: %w", f.Name, err)
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	return nil
}
