# Custom roles of Google Cloud with the rights of a source and of an export, granted to one service account of a GKE
# cluster (Workload Identity Federation).
variable "project" { description = "project of the cluster, and of the roles" }
variable "project_number" { description = "its number" }
variable "namespace" { description = "namespace of the BucketSource" }
variable "service_account" { description = "its spec.serviceAccountName" }
variable "source_bucket" { description = "bucket that is read" }
variable "export_bucket" { description = "bucket that files are exported to" }

locals {
  roles     = { source = yamldecode(file("${path.module}/../gcs-source.yaml")), export = yamldecode(file("${path.module}/../gcs-export.yaml")) }
  buckets   = { source = var.source_bucket, export = var.export_bucket }
  pool      = "projects/${var.project_number}/locations/global/workloadIdentityPools/${var.project}.svc.id.goog"
  principal = "principal://iam.googleapis.com/${local.pool}/subject/ns/${var.namespace}/sa/${var.service_account}"
}

resource "google_project_iam_custom_role" "cistern" {
  for_each    = local.roles
  project     = var.project
  role_id     = "cistern_${each.key}"
  title       = each.value.title
  description = each.value.description
  permissions = each.value.includedPermissions
}

resource "google_storage_bucket_iam_member" "cistern" {
  for_each = local.buckets
  bucket   = each.value
  role     = google_project_iam_custom_role.cistern[each.key].id
  member   = local.principal
}
