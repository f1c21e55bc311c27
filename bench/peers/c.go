package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	_ "embed" // the C source

	"gradnic/bench/gen"
	"gradnic/internal/netlab"

	"golang.org/x/sys/unix"
)

//go:embed c/xskpeer.c
var xskpeerSource []byte

// BuildC compiles the C yardstick into dir with the machine's C compiler and returns the program's path.
func BuildC(ctx context.Context, dir string) (string, error) {
	src, bin := filepath.Join(dir, "xskpeer.c"), filepath.Join(dir, "xskpeer")
	if err := os.WriteFile(src, xskpeerSource, 0o644); err != nil {
		return "", fmt.Errorf("write the C yardstick: %w", err)
	}
	out, err := exec.CommandContext(ctx, "cc", "-O2", "-Wall", "-o", bin, src).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compile the C yardstick: %w\n%s", err, out)
	}
	return bin, nil
}

// LaunchC starts the C program bin (of BuildC) in ns behind the bench's redirect program, the least that brings a
// frame to a socket.
func LaunchC(ns *netlab.NS, bin string, on Target) (*Process, error) {
	var prog *gen.Program
	if err := ns.Do(func() (err error) { prog, err = gen.OpenRedirect(on.IfIndex); return }); err != nil {
		return nil, err
	}
	// A duplicate, since an os.File closes its descriptor and this one is the map's.
	fd, err := unix.FcntlInt(uintptr(prog.Sockets().FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("duplicate the XSKMAP's descriptor: %w", err), prog.Close())
	}
	xsks := os.NewFile(uintptr(fd), "xsks")
	defer xsks.Close()
	p, err := Launch(ns, "c", []string{bin}, on, xsks)
	if err != nil {
		return nil, errors.Join(err, prog.Close())
	}
	p.after = prog.Close
	return p, nil
}
