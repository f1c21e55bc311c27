package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gradnic/xdp/settings"
)

func newRestoreCmd() *cobra.Command {
	var iface string
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Set interfaces back that a killed NIC has left changed",
		Long: "Set back the queues, rings, features, hash fields and rules of interfaces that a NIC has\n" +
			"changed and could not set back, since it was killed or had dropped its capabilities. What a\n" +
			"NIC that runs has changed stays, and so does what somebody else has changed since. The next\n" +
			"`gradnic run` on the interface does the same; as ExecStopPost= of a service nothing is left\n" +
			"even when there is none. Run it in the network namespace of the interfaces. State files are\n" +
			"in $" + settings.EnvDir + ", or " + settings.DefaultDir + ".",
		Example: "  gradnic restore\n  gradnic restore --port eth1",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := settings.Restore(settings.Dir(), iface)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			var errs []error
			for _, r := range all {
				switch {
				case r.Err != nil:
					errs = append(errs, fmt.Errorf("%s: %w", r.Interface, r.Err))
					continue
				case r.Skipped != "":
					fmt.Fprintf(out, "%s left: %s\n", r.Interface, r.Skipped)
				case len(r.Undone)+len(r.Kept) == 0:
					fmt.Fprintf(out, "%s is as it was\n", r.Interface)
				}
				for _, u := range r.Undone {
					fmt.Fprintf(out, "%s set back: %s\n", r.Interface, u)
				}
				for _, k := range r.Kept {
					fmt.Fprintf(out, "kept: %s\n", k)
				}
			}
			if len(all) == 0 {
				fmt.Fprintln(out, "nothing to set back")
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVar(&iface, "port", "", "only this interface")
	return cmd
}
