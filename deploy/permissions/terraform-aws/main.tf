# A role of AWS that one service account of a cluster may use (IRSA), with the rights of a source and of an export.
variable "oidc_provider" { description = "host and path of the cluster's issuer, without https://" }
variable "oidc_provider_arn" { description = "ARN of the IAM OIDC provider of that issuer" }
variable "namespace" { description = "namespace of the BucketSource" }
variable "service_account" { description = "its spec.serviceAccountName" }
variable "source_bucket" { description = "bucket that is read" }
variable "source_prefix" { description = "what is read of it, without slashes at its ends" }
variable "export_bucket" { description = "bucket that files are exported to" }
variable "export_prefix" { description = "where they are exported to, without slashes at its ends" }

resource "aws_iam_role" "cistern" {
  name = "cistern-${var.namespace}-${var.service_account}"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRoleWithWebIdentity"
      Principal = { Federated = var.oidc_provider_arn }
      Condition = {
        StringEquals = {
          "${var.oidc_provider}:aud" = "sts.amazonaws.com"
          "${var.oidc_provider}:sub" = "system:serviceaccount:${var.namespace}:${var.service_account}"
        }
      }
    }]
  })
}

resource "aws_iam_role_policy" "source" {
  name   = "cistern-source"
  role   = aws_iam_role.cistern.id
  policy = replace(replace(file("${path.module}/../s3-source.json"), "BUCKET", var.source_bucket), "PREFIX", var.source_prefix)
}

resource "aws_iam_role_policy" "export" {
  name   = "cistern-export"
  role   = aws_iam_role.cistern.id
  policy = replace(replace(file("${path.module}/../s3-export.json"), "BUCKET", var.export_bucket), "PREFIX", var.export_prefix)
}

output "role_arn" { # for the annotation eks.amazonaws.com/role-arn of the service account
  value = aws_iam_role.cistern.arn
}
