package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gradnic/control"
	"gradnic/internal/doctor"
)

func newDoctorCmd() *cobra.Command {
	var (
		api    apiFlags
		output outputFlags
		o      doctor.Options
		bundle string
	)
	cmd := &cobra.Command{
		Use:   "doctor [IFACE...]",
		Short: "Say what this machine lacks to run the NIC, and the command that mends it",
		Long: "Look at the machine and at the interfaces that the NIC is to run on, change nothing, and\n" +
			"say what is missing or could be better, each with the command that mends it. Status 0\n" +
			"only when nothing is missing. Without interfaces all Ethernet interfaces are looked at,\n" +
			"and what they lack is advice.",
		Example: "  gradnic doctor eth1 eth2 --lanes 2\n" +
			"  gradnic doctor --bundle report.tar.gz",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Interfaces = args
			r, err := doctor.Examine(o)
			if err != nil {
				return usageErrorf("%w", err)
			}
			if bundle != "" {
				if err := writeBundle(cmd, &api, bundle, r, args); err != nil {
					return err
				}
			}
			err = output.print(cmd.OutOrStdout(), r, func(w io.Writer) error {
				_, err := io.WriteString(w, r.Text())
				return err
			})
			if err == nil && !r.OK {
				return fmt.Errorf("something is missing: the lines above say what, and what mends it")
			}
			return err
		},
	}
	api.register(cmd)
	output.register(cmd)
	f := cmd.Flags()
	f.IntVar(&o.Lanes, "lanes", 1, "as for gradnic run")
	f.IntVar(&o.ChunkSize, "chunk", 2048, "as for gradnic run")
	f.IntVar(&o.Frames, "frames", 2048, "as for gradnic run")
	f.BoolVar(&o.HugePages, "huge-pages", false, "as for gradnic run")
	f.StringVar(&bundle, "bundle", "", "write a .tar.gz for a bug report: this, the kernel's facts, and what a running NIC shows")
	return cmd
}

// writeBundle collects what a bug report needs. That no NIC runs, or does not answer, is noted and no error.
func writeBundle(cmd *cobra.Command, api *apiFlags, path string, r doctor.Report, interfaces []string) error {
	var files []doctor.File
	add := func(name string, document any) error {
		f, err := doctor.JSONFile(name, document)
		files = append(files, f)
		return err
	}
	if err := add("version.json", buildVersion()); err != nil {
		return err
	}
	if err := add("doctor.json", r); err != nil {
		return err
	}
	files = append(files, doctor.Facts(interfaces))
	err := api.call(cmd, func(ctx context.Context, c *control.Client) error {
		for _, v := range views {
			if v.args == "NAME" {
				continue
			}
			document, _, err := v.fetch(ctx, c, nil)
			if err != nil {
				return err
			}
			if err := add("show/"+v.name+".json", document); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		files = append(files, doctor.File{Name: "show/error.txt", Data: []byte(err.Error() + "\n")})
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--bundle: %w", err)
	}
	err = doctor.WriteBundle(f, time.Now(), files)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("--bundle: %w", closeErr)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "written to %s; it has addresses of this network and names of jobs, look into it before you give it away\n", path)
	return nil
}
