package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gradnic/control"
	apiv1 "gradnic/control/api/v1"
	"gradnic/control/pcapng"
	"gradnic/control/show"
	"gradnic/dataplane"
)

func newCaptureCmd() *cobra.Command {
	var (
		api      apiFlags
		file     string
		r        apiv1.CaptureRequest
		stages   []string
		duration time.Duration
	)
	cmd := &cobra.Command{
		Use:   "capture [-w FILE]",
		Short: "Show or write the frames of a running NIC, with what became of them",
		Long: "Show the frames of a running NIC as they are received, sent and dropped, a line each,\n" +
			"or write them as pcapng for tcpdump and Wireshark, where each frame's comment says\n" +
			"stage, port, lane and, for a drop, the reason. It ends after --count frames, after\n" +
			"--duration, on SIGINT, or with the NIC. The NIC does not wait for the capture: what it\n" +
			"cannot keep is counted and told at the end.",
		Example: "  gradnic capture --stage drop\n" +
			"  gradnic capture -w - --port eth1 | tcpdump -r -\n" +
			"  gradnic capture -w trouble.pcapng --duration 5s --snaplen 64",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range stages {
				s, err := dataplane.ParseCaptureStage(name)
				if err != nil {
					return usageErrorf("--stage: %w", err)
				}
				r.Stages = append(r.Stages, apiv1.CaptureStage(s)+apiv1.CaptureStage_CAPTURE_STAGE_RX)
			}
			ctx := cmd.Context()
			if duration > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, duration)
				defer cancel()
			}
			out, done, err := openOutput(cmd, file)
			if err != nil {
				return err
			}
			err = api.stream(cmd, func(c *control.Client) error { return capture(ctx, cmd, c, &r, out, file != "") })
			if closeErr := done(); err == nil {
				err = closeErr
			}
			return err
		},
	}
	api.register(cmd)
	f := cmd.Flags()
	f.StringVarP(&file, "write", "w", "", "write pcapng to this file, - for standard output")
	f.StringArrayVar(&r.Ports, "port", nil, "only this port; once for each")
	f.StringSliceVar(&stages, "stage", nil, "only these stages: rx, tx, drop")
	f.Uint64Var(&r.Count, "count", 0, "end after so many frames")
	f.Uint32Var(&r.SnapLen, "snaplen", 0, "keep so many bytes of a frame; 0 keeps all")
	f.Uint32Var(&r.Buffer, "buffer", 0, "bytes that the NIC keeps for each lane until they are read (default 4 MiB)")
	f.DurationVar(&duration, "duration", 0, "end after this time")
	return cmd
}

// openOutput opens what is written to, and returns how it is finished.
func openOutput(cmd *cobra.Command, file string) (io.Writer, func() error, error) {
	if file == "" || file == "-" {
		w := bufio.NewWriter(cmd.OutOrStdout())
		return w, w.Flush, nil
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("-w: %w", err)
	}
	return f, f.Close, nil
}

// capture receives frames and writes them as lines or as pcapng; progress and losses go to standard error.
func capture(ctx context.Context, cmd *cobra.Command, c *control.Client, r *apiv1.CaptureRequest, out io.Writer, asFile bool) error {
	var (
		ports  []string
		file   *pcapng.Writer
		lost   []*apiv1.CaptureLoss
		frames uint64
	)
	flush := func() error {
		if b, ok := out.(*bufio.Writer); ok {
			return b.Flush()
		}
		return nil
	}
	err := c.CaptureFrames(ctx, r, func(m *apiv1.CaptureResponse) (err error) {
		if ports == nil {
			ports = m.GetPorts()
			if asFile {
				if file, err = pcapng.NewWriter(out, ports, buildVersion().Version, r.GetSnapLen()); err != nil {
					return err
				}
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "capturing on %s\n", strings.Join(ports, ", "))
			return flush()
		}
		lost = m.GetLost()
		for _, f := range m.GetFrames() {
			frames++
			if file != nil {
				err = file.Frame(f)
			} else {
				err = show.TextCaptured(out, ports, f)
			}
			if err != nil {
				return err
			}
		}
		if file != nil {
			if err := file.Flush(); err != nil {
				return err
			}
		}
		return flush()
	})
	if err == nil && file != nil {
		err = file.Finish(lost)
	}
	if ports == nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%d frames captured%s\n", frames, show.CaptureLost(ports, lost))
	return err
}
