package main

import (
	"context"

	"k8s.io/component-base/cli"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// The kubelet has a file of its own: the versions without tests on a real node are built without it.
func init() {
	programs["kubelet"] = func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) }
}
