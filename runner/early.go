package runner

import "os"

// A guard is this program once more, and needs nothing of it but this package. Its
// work begins here, before the packages that it does not need are initialised, which
// would cost as much as the start of the command that it is to guard.
func init() {
	if isGuard, code := guardMain(); isGuard {
		os.Exit(code)
	}
}
