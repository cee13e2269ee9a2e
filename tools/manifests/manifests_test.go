// Package manifests checks the manifests of examples/kubernetes against the types of Kubernetes.
package manifests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const folder = "../../examples/kubernetes"

// documents returns the documents of a file by their kinds, and fails on a field that the kind has
// not.
func documents(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, file))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		object, known := map[string]any{
			"v1 Secret": new(corev1.Secret), "batch/v1 Job": new(batchv1.Job), "batch/v1 CronJob": new(batchv1.CronJob),
			"apps/v1 Deployment": new(appsv1.Deployment),
		}[head.APIVersion+" "+head.Kind]
		if !known {
			t.Fatalf("%s: unknown kind %+v", file, head)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Fatalf("%s: %s: %v", file, head.Kind, err)
		}
		found[head.Kind] = object
	}
	return found
}

func TestManifestsAreStrictlyOfTheirKinds(t *testing.T) {
	leader, nightly := documents(t, "leader.yaml"), documents(t, "nightly.yaml")
	secret := leader["Secret"].(*corev1.Secret)
	deployment := leader["Deployment"].(*appsv1.Deployment)
	cron := nightly["CronJob"].(*batchv1.CronJob)
	for what, pod := range map[string]corev1.PodSpec{
		"Job": leader["Job"].(*batchv1.Job).Spec.Template.Spec, "Deployment": deployment.Spec.Template.Spec,
		"CronJob": cron.Spec.JobTemplate.Spec.Template.Spec,
	} {
		checkPod(t, what, pod, secret)
	}
	template := deployment.Spec.Template
	for key, value := range deployment.Spec.Selector.MatchLabels {
		if template.Labels[key] != value {
			t.Errorf("the selector's %s is no label of the pods", key)
		}
	}
	c := template.Spec.Containers[0]
	got := []string{c.StartupProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path}
	if !slices.Equal(got, []string{"/live", "/live", "/ready"}) {
		t.Errorf("probes: %q: only readiness may ask the database", got)
	}
	command := cron.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Command
	for flag, value := range map[string]string{"--slot-of": cron.Spec.Schedule, "--tz": *cron.Spec.TimeZone} {
		if i := slices.Index(command, flag); i < 0 || command[i+1] != value {
			t.Errorf("%s of %q is not the CronJob's %q", flag, command, value)
		}
	}
}

// checkPod fails on a pod with the rights of root, a volume that is missing, or another secret.
func checkPod(t *testing.T, what string, pod corev1.PodSpec, secret *corev1.Secret) {
	t.Helper()
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
		t.Errorf("%s: may run as root", what)
	}
	for _, c := range pod.Containers {
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			t.Errorf("%s: %s writes into its image", what, c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
				t.Errorf("%s: no volume %s", what, m.Name)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			ref := e.ValueFrom.SecretKeyRef
			if _, has := secret.StringData[ref.Key]; ref.Name != secret.Name || !has {
				t.Errorf("%s: no secret %s with %s", what, ref.Name, ref.Key)
			}
		}
	}
}
