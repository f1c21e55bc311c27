package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"gradnic/control/config"
)

// Exit statuses of the process.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitInvalid = 3
)

// verbs are the commands of the binary, in the order in which help shows them.
var verbs = []func() *cobra.Command{
	newRunCmd,
	newShowCmd,
	newInstallCmd,
	newRemoveCmd,
	newRenewCmd,
	newWatchCmd,
	newSetCmd,
	newClearCmd,
	newCaptureCmd,
	newTraceCmd,
	newDoctorCmd,
	newRestoreCmd,
	newBumpCmd,
	newWorkerCmd,
	newACCLCmd,
	newRingCmd,
	newDemoCmd,
	newBenchCmd,
	newPktgenCmd,
	newCodecCmd,
	newModelCmd,
	newInteropCmd,
	newVersionCmd,
}

// Help lists verbs in the order of the list above, the way they are used.
func init() { cobra.EnableCommandSorting = false }

// newRootCmd builds the whole command tree. It has no state outside itself, so
// that tests may build as many as they like.
func newRootCmd() *cobra.Command {
	root := &cobra.Command{
		Use:   "gradnic",
		Short: "An AI smart NIC in software: sums gradients inside the network over AF_XDP",
		Long: "gradnic turns Linux network interfaces into a NIC that sums gradients inside the\n" +
			"network over AF_XDP, and speaks the wire protocols of real cards.",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              noSuchVerb,
		RunE:              needVerb,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return config.Plain(err) })
	for _, verb := range verbs {
		root.AddCommand(verb())
	}
	return root
}

// needVerb is the RunE of a command that only groups other commands.
func needVerb(cmd *cobra.Command, _ []string) error {
	names := make([]string, 0, len(cmd.Commands()))
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usageErrorf("%s: a command is missing: one of %s", cmd.CommandPath(), strings.Join(names, ", "))
}

// noSuchVerb is the Args of a command that only groups other commands.
func noSuchVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	mend := fmt.Sprintf("see %s --help", cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		mend = "did you mean " + near[0] + "?"
	}
	return usageErrorf("%s: unknown command %q: %s", cmd.CommandPath(), args[0], mend)
}

// run executes one command line and returns the exit status.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	root := newRootCmd()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)

	// Whatever fails before a verb's own code runs is a wrong command line:
	// flags, argument counts, required flags, unknown verbs.
	started := false
	markStart(root, &started)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var usage *usageError
	isUsage := !started || errors.As(err, &usage)
	where := "gradnic"
	if cmd != nil {
		where = cmd.CommandPath()
	}
	line := oneLine(err.Error())
	if !strings.HasPrefix(line, where+":") {
		line = where + ": " + withoutVerb(line, where)
	}
	if isUsage {
		if !strings.Contains(line, "--help") && !errors.As(err, &usage) {
			line += ": see " + where + " --help"
		}
		fmt.Fprintln(errOut, line)
		return exitUsage
	}
	fmt.Fprintln(errOut, line)
	if errors.As(err, new(*invalidError)) {
		return exitInvalid
	}
	return exitFailed
}

// withoutVerb leaves out how an error begins when the command's path says it: packages put their name there, as verbs have it.
func withoutVerb(line, path string) string {
	name, rest, ok := strings.Cut(line, ": ")
	if ok && slices.Contains(strings.Fields(path), name) {
		return rest
	}
	return line
}

func markStart(cmd *cobra.Command, started *bool) {
	if inner := cmd.RunE; inner != nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			*started = true
			return inner(c, args)
		}
	}
	for _, c := range cmd.Commands() {
		markStart(c, started)
	}
}

// usageError says that the command line itself was wrong: exit status 2.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// usageErrorf makes an error that ends the process with status 2. Say what is
// wrong, where (the flag or argument), and what would be right.
func usageErrorf(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// invalidError says that a measurement was made, and what it shows is not to be trusted: exit status 3.
type invalidError struct{ what string }

func (e *invalidError) Error() string { return e.what }

// oneLine folds an error of several lines (errors.Join, YAML positions) into one.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
