// Command gradnic is an AI smart NIC in software: one binary, one file a verb,
// and no logic of its own.
//
// A verb reads its flags, calls the package that does the work, and prints.
// Results go to standard output and nothing else does; what went wrong goes to
// standard error in one line that says what, where, and what would mend it.
//
// Exit status:
//
//	0  what was asked held
//	1  it did not (the line on standard error says why)
//	2  the command line was wrong
//
// To add a verb, write newNameCmd() *cobra.Command in name.go and add it to the
// list in root.go. Use cmd.Context() (cancelled by SIGINT and SIGTERM),
// cmd.OutOrStdout() and cmd.ErrOrStderr(), return errors instead of printing
// them, and use usageErrorf for a command line that can not be served.
package main
